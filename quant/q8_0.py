"""Q8_0: 32 values of 8 bits and a scale.

offset  bytes  field  meaning
0       2      d      scale, float16
2       32     qs     signed values

value = d * q
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, reciprocal, round_away
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout

BLOCK = layout("Q8_0", [("d", "<f2"), ("qs", "i1", 32)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 32)."""
    return expand(Integers(blocks["qs"], f32(blocks["d"])[:, None]))


def quantize(values: Float) -> Blocks:
    """(n, 32) -> (n,): the value farthest from zero becomes q = 127 or -127."""
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    blocks = np.empty(len(values), BLOCK)
    blocks["d"], blocks["qs"] = f16(scale[:, 0]), round_away(values * reciprocal(scale))
    return blocks


FORMAT = Format(by_name("Q8_0"), BLOCK, dequantize, quantize)
