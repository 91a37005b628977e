"""IQ4_NL: 32 values of 4 bits that name 16 unevenly spaced levels, and a scale.

offset  bytes  field  meaning
0       2      d      scale, float16
2       16     qs     byte j: value j in bits 0-3, value j + 16 in bits 4-7

value = d * LEVELS[q]
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.search import fit_scale

BLOCK = layout("IQ4_NL", [("d", "<f2"), ("qs", "u1", 16)])

LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
TARGETS = LEVELS[0] + np.arange(-7.0, 8.0)
"""Where ``fit`` tries to put the value farthest from zero."""

_BETWEEN = (LEVELS[1:].astype(np.float32) + LEVELS[:-1]) / 2


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 32)."""
    return expand(Integers(LEVELS[unpack(blocks["qs"], run=16, bits=4)], f32(blocks["d"])[:, None]))


def quantize(values: Float) -> Blocks:
    """(n, 32) -> (n,)."""
    scale = fit_scale(values, np.square(values), snap, TARGETS)
    blocks = np.empty(len(values), BLOCK)
    blocks["d"] = f16(scale)
    blocks["qs"] = pack(nearest(values * reciprocal(f32(blocks["d"]))[:, None]), run=16, bits=4)
    return blocks


def nearest(x: Float) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
    """The number of the level nearest to each value."""
    return np.searchsorted(_BETWEEN, x)


def snap(x: Float) -> Float:
    """The level nearest to each value."""
    return f32(LEVELS[nearest(x)])


FORMAT = Format(by_name("IQ4_NL"), BLOCK, dequantize, quantize)
