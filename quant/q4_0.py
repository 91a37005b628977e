"""Q4_0: 32 values of 4 bits and a scale.

offset  bytes  field  meaning
0       2      d      scale, float16
2       16     qs     byte j: value j in bits 0-3, value j + 16 in bits 4-7

value = d * (q - 8)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout

BLOCK = layout("Q4_0", [("d", "<f2"), ("qs", "u1", 16)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 32)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 32) -> (n,): the value farthest from zero becomes q = 0 exactly."""
    peak = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
    scale = peak / np.float32(-8)
    codes = np.minimum(np.trunc(values * reciprocal(scale) + np.float32(8.5)), 15)
    blocks = np.empty(len(values), BLOCK)
    blocks["d"], blocks["qs"] = f16(scale[:, 0]), pack(codes, run=16, bits=4)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 32) within [-8, 7], scale (n, 1)."""
    codes = unpack(blocks["qs"], run=16, bits=4).view(np.int8)
    codes -= 8
    return Integers(codes, f32(blocks["d"])[:, None])


FORMAT = Format(by_name("Q4_0"), BLOCK, dequantize, quantize)
