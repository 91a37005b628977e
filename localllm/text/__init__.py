"""Text: tokenizers, the streaming decoder and chat templates. The engine above knows ids only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localllm.text.templates import ChatTemplate
    from localllm.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "Tokenizer"]


def __getattr__(name: str) -> Any:
    if name == "Tokenizer":
        from localllm.text.tokenizer import Tokenizer

        return Tokenizer
    if name == "ChatTemplate":
        from localllm.text.templates import ChatTemplate

        return ChatTemplate
    raise AttributeError(f"module 'localllm.text' has no attribute {name!r}")
