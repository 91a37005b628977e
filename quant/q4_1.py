"""Q4_1: 32 values of 4 bits, a scale and a minimum.

offset  bytes  field  meaning
0       2      d      scale, float16
2       2      m      minimum, float16
4       16     qs     byte j: value j in bits 0-3, value j + 16 in bits 4-7

value = d * q + m
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout

BLOCK = layout("Q4_1", [("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 32)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 32) -> (n,): smallest and largest value become q = 0 and 15."""
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    scale = (high - low) / np.float32(15)
    codes = np.minimum(np.trunc((values - low) * reciprocal(scale) + np.float32(0.5)), 15)
    blocks = np.empty(len(values), BLOCK)
    blocks["d"], blocks["m"], blocks["qs"] = f16(scale[:, 0]), f16(low[:, 0]), pack(codes, run=16, bits=4)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 32) within [0, 15], scale and minimum (n, 1)."""
    return Integers(unpack(blocks["qs"], run=16, bits=4).view(np.int8), f32(blocks["d"])[:, None], f32(blocks["m"])[:, None])


FORMAT = Format(by_name("Q4_1"), BLOCK, dequantize, quantize)
