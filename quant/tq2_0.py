"""TQ2_0: 256 values -1, 0, 1 (and 2) of 2 bits and a scale; 2.06 bits a value.

offset  bytes  field  meaning
0       64     qs     32 bytes for each half: bits 0-1 of all of them are its first 32 values, bits 2-3 the next, and so on
64      2      d      scale, float16

value = d * (q - 1)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, round_away, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout

BLOCK = layout("TQ2_0", [("qs", "u1", 64), ("d", "<f2")])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 256) -> (n,): to -1, 0, 1 times the largest absolute value."""
    scale = np.abs(values).max(axis=1, keepdims=True)
    codes = round_away(values * reciprocal(scale)) + 1
    blocks = np.empty(len(values), BLOCK)
    blocks["qs"], blocks["d"] = pack(codes, run=32, bits=2), f16(scale[:, 0])
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-1, 2], scale (n, 1)."""
    codes = unpack(blocks["qs"], run=32, bits=2).view(np.int8)
    codes -= 1
    return Integers(codes, f32(blocks["d"])[:, None])


FORMAT = Format(by_name("TQ2_0"), BLOCK, dequantize, quantize)
