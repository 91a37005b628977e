"""Talking with a model in the terminal."""

from localllm.chat.loop import chat

__all__ = ["chat"]
