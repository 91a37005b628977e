"""qwen2: Qwen 2 and 2.5.

As llama, but halves of a head are rotated against each other, and q, k and v have biases. Source: llama.cpp src/models/qwen2.cpp.
"""

from __future__ import annotations

from localllm.archs.decoder import decoder
from localllm.archs.keys import Keys
from localllm.model.config import ModelConfig


def configure(keys: Keys) -> ModelConfig:
    """The family's ModelConfig."""
    return decoder(keys, rope="neox", biases=("attn_q", "attn_k", "attn_v"))
