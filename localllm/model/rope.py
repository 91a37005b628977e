"""Angles of rotary position embedding, for every backend: linear scaling, llama3's factors and YaRN.

Pair i of a head's ``dim`` values turns by theta_i = position * freq_base^(-2i/dim) / factors_i, times freq_scale where positions are
interpolated. YaRN (Peng et al. 2023) interpolates slow pairs only: ``ramp`` is 1 for pairs that turn more than beta_fast times over the
original context, 0 for those that turn less than beta_slow times, and it makes up for the flatter attention by a scale of cosine and sine.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from localllm.model.program import Rope

Float = NDArray[np.float32]
Double = NDArray[np.float64]


def cos_sin(rope: Rope, factors: Float | None, first: int, count: int) -> Float:
    """Of positions first to first + count - 1: float32 (count, dim), dim/2 cosines, then dim/2 sines.

    ``factors`` (dim/2): the tensor that ``rope.factors`` names. A row depends on its position alone, computed in float64.
    """
    theta = np.arange(first, first + count, dtype=np.float64)[:, None] * frequencies(rope, factors)
    return (np.concatenate([np.cos(theta), np.sin(theta)], axis=1) * magnitude(rope)).astype(np.float32)


def frequencies(rope: Rope, factors: Float | None) -> Double:
    """Radians that each pair turns by from one position to the next: (dim/2,)."""
    pairs = np.arange(rope.dim // 2, dtype=np.float64)
    turns = rope.freq_base ** (-2.0 * pairs / rope.dim)
    if factors is not None:
        turns = turns / factors.astype(np.float64)
    mix = ramp(rope) * rope.ext_factor if rope.ext_factor else 0.0
    return turns * (rope.freq_scale * (1.0 - mix) + mix)


def ramp(rope: Rope) -> Double:
    """YaRN's share of extrapolation: (dim/2,), from 1 for the fastest pairs down to 0."""
    low = max(math.floor(_pair(rope, rope.beta_fast)), 0)
    high = min(math.ceil(_pair(rope, rope.beta_slow)), rope.dim - 1)
    rise = (np.arange(rope.dim // 2, dtype=np.float64) - low) / max(high - low, 0.001)
    return 1.0 - np.clip(rise, 0.0, 1.0)


def magnitude(rope: Rope) -> float:
    """What cosine and sine are multiplied by: attn_factor, with YaRN also 1 + 0.1 ln(factor)."""
    factor = 1.0 / rope.freq_scale
    stretch = 1.0 + 0.1 * math.log(factor) if rope.ext_factor and factor > 1.0 else 1.0
    return rope.attn_factor * stretch


def _pair(rope: Rope, turns: float) -> float:
    """The pair, as a real number, that turns so many times over the original context."""
    return rope.dim * math.log(rope.original_context / (turns * 2.0 * math.pi)) / (2.0 * math.log(rope.freq_base))
