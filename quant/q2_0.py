"""Q2_0: 64 values -1, 0, 1, 2 of 2 bits and a scale; 2.25 bits a value.

offset  bytes  field  meaning
0       2      d      scale, float16
2       16     qs     bits 2 k and 2 k + 1 of byte j: value 4 j + k

value = d * (q - 1)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, round_away, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout

BLOCK = layout("Q2_0", [("d", "<f2"), ("qs", "u1", 16)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 64)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 64) -> (n,): to -1, 0, 1 times the largest absolute value."""
    scale = np.abs(values).max(axis=1, keepdims=True)
    codes = round_away(values * reciprocal(scale)) + 1
    blocks = np.empty(len(values), BLOCK)
    blocks["d"], blocks["qs"] = f16(scale[:, 0]), pack(codes, run=1, bits=2)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 64) within [-1, 2], scale (n, 1)."""
    codes = unpack(blocks["qs"], run=1, bits=2).view(np.int8)
    codes -= 1
    return Integers(codes, f32(blocks["d"])[:, None])


FORMAT = Format(by_name("Q2_0"), BLOCK, dequantize, quantize)
