"""llama: Llama 1 to 3, Mistral, Mixtral, SmolLM2 and many more.

RMSNorm, rotation of neighbours, SiLU-gated feed-forward network or Mixtral's experts; biases where the file has them.
Source: llama.cpp src/models/llama.cpp.
"""

from __future__ import annotations

from localllm.archs.decoder import decoder
from localllm.archs.keys import Keys
from localllm.model.config import ModelConfig


def configure(keys: Keys) -> ModelConfig:
    """The family's ModelConfig."""
    return decoder(keys, rope="norm", experts=True)
