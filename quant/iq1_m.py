"""IQ1_M: 256 values in 16 groups of 16, from IQ1_S's codebook; 1.75 bits a value.

offset  bytes  field   meaning
0       32     qs      low 8 bits of the entry of each 8 values
32      16     qh      byte j, for entries 2 j and 2 j + 1: bits 0-2 and 4-6: bits 8-10 of the entry, bits 3 and 7: delta is -1/8, else 1/8
48      8      scales  four little-endian words: bits 0-11: 3 bits of scale for each of four groups;
                       bits 12-15: four bits of the float16 d, the lowest first

value = d * (2 * scale + 1) * (entry + delta)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.grids import gather

BLOCK = layout("IQ1_M", [("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4)])

_SHIFTS = np.array([0, 3, 6, 9], np.uint16)
_PLACES = np.array([12, 8, 4, 0], np.uint16)


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-9, 9]: eight times (entry + delta); scale (n, 16): an eighth of the format's."""
    count, words = len(blocks), blocks["scales"]
    extra = unpack(blocks["qh"], run=1, bits=4)
    codes = gather("IQ1_M", (extra & 7).astype(np.uint16) << 8 | blocks["qs"])
    codes *= 8
    entries = codes.reshape(count, 32, 8)
    entries += np.where(extra & 8, np.int8(-1), np.int8(1))[:, :, None]
    d = np.bitwise_or.reduce((words & 0xF000) >> _PLACES, axis=1, dtype=np.uint16).view(np.float16)
    scales = (words[:, :, None] >> _SHIFTS & 7).reshape(count, 16) * 2 + 1
    return Integers(codes, f32(d)[:, None] * f32(scales) * np.float32(0.125))


FORMAT = Format(by_name("IQ1_M"), BLOCK, dequantize)
