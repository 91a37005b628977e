"""qwen3: the dense Qwen 3 models.

As qwen2, but without biases and with a norm on every head's q and k. Source: llama.cpp src/models/qwen3.cpp.
"""

from __future__ import annotations

from localllm.archs.decoder import decoder
from localllm.archs.keys import Keys
from localllm.model.config import ModelConfig


def configure(keys: Keys) -> ModelConfig:
    """The family's ModelConfig."""
    return decoder(keys, rope="neox", qk_norm=True)
