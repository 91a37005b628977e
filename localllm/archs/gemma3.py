"""gemma3: the text side of Gemma 3.

Every sixth layer sees all positions, the others a window, with a rotation of their own; scaled embeddings; norms on q and k and behind
each half of a layer; a GELU gate. The files' norm weights already hold the "1 +" of the original. Source: llama.cpp src/models/gemma3.cpp.
"""

from __future__ import annotations

import math
from dataclasses import replace

from localllm.archs.decoder import decoder
from localllm.archs.keys import Keys
from localllm.model.config import LayerConfig, ModelConfig

PATTERN = "attention.sliding_window_pattern"


def configure(keys: Keys) -> ModelConfig:
    """The family's ModelConfig."""
    config = decoder(keys, rope="neox", activation="gelu", qk_norm=True, post_norms=True)
    window = keys.count("attention.sliding_window", 0, low=0)
    local = _local(keys, len(config.layers)) if window else [False] * len(config.layers)
    base = keys.number("rope.freq_base_swa", 10000.0)
    layers = (_layer(layer, window if here else 0, base) for layer, here in zip(config.layers, local, strict=True))
    config = replace(config, layers=tuple(layers), embedding_scale=math.sqrt(config.embedding_length))
    return _scaled_27b(config) if len(config.layers) == 62 and "attention.scale" not in keys else config


def _local(keys: Keys, layers: int) -> list[bool]:
    """Which layers have a window: listed, or all but the last of every so many (0: all)."""
    if keys.is_list(PATTERN):
        return list(keys.flags(PATTERN, layers))
    period = keys.count(PATTERN, 6, low=0)
    return [period == 0 or (index + 1) % period != 0 for index in range(layers)]


def _layer(layer: LayerConfig, window: int, base: float) -> LayerConfig:
    if not window or layer.rope is None:
        return layer
    return replace(layer, sliding_window=window, rope=replace(layer.rope, freq_base=base, freq_scale=1.0, ext_factor=0.0, factors=None))


def _scaled_27b(config: ModelConfig) -> ModelConfig:
    """The 27B model, known by its 62 layers, scales by the embedding's share of a head instead of the head's own length."""
    layers = (replace(layer, scale=1 / math.sqrt(config.embedding_length // layer.head_count)) for layer in config.layers)
    return replace(config, layers=tuple(layers))
