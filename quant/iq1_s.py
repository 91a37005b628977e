"""IQ1_S: 256 values in 8 groups of 32, from a codebook of 2048 entries of 8 values -1, 0, 1; 1.56 bits a value.

offset  bytes  field  meaning
0       2      d      scale, float16
2       32     qs     low 8 bits of the entry of each 8 values
34      16     qh     little-endian word for each group: bits 0-11: bits 8-10 of its four entries,
                      bits 12-14: scale, bit 15: delta is -1/8, else 1/8

value = d * (2 * scale + 1) * (entry + delta)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.grids import gather

BLOCK = layout("IQ1_S", [("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8)])

_SHIFTS = np.array([0, 3, 6, 9], np.uint16)


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-9, 9]: eight times (entry + delta); scale (n, 8): an eighth of the format's."""
    count, words = len(blocks), blocks["qh"]
    high = (words[:, :, None] >> _SHIFTS & 7).reshape(count, 32)
    codes = gather("IQ1_S", high << 8 | blocks["qs"])
    codes *= 8
    groups = codes.reshape(count, 8, 32)
    groups += np.where(words >> 15, np.int8(-1), np.int8(1))[:, :, None]
    scale = f32(blocks["d"])[:, None] * f32((words >> 12 & 7) * 2 + 1) * np.float32(0.125)
    return Integers(codes, scale)


FORMAT = Format(by_name("IQ1_S"), BLOCK, dequantize)
