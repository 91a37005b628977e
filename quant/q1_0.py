"""Q1_0: 128 signs and a scale; 1.125 bits a value.

offset  bytes  field  meaning
0       2      d      scale, float16
2       16     qs     bit k of byte j: value 8 j + k is positive

value = d if the bit is set, else -d
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout

BLOCK = layout("Q1_0", [("d", "<f2"), ("qs", "u1", 16)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 128)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 128) -> (n,): the scale is the mean absolute value, which has the least error."""
    blocks = np.empty(len(values), BLOCK)
    blocks["d"], blocks["qs"] = f16(np.abs(values).mean(axis=1)), pack(values >= 0, run=1, bits=1)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 128), -1 or 1, scale (n, 1)."""
    codes = unpack(blocks["qs"], run=1, bits=1).view(np.int8)
    codes *= 2
    codes -= 1
    return Integers(codes, f32(blocks["d"])[:, None])


FORMAT = Format(by_name("Q1_0"), BLOCK, dequantize, quantize)
