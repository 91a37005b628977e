"""IQ3_S: 256 values in 8 groups of 32, from a codebook of 512 entries of 4 values; 3.44 bits a value.

offset  bytes  field   meaning
0       2      d       scale, float16
2       64     qs      low 8 bits of the entry of each 4 values
66      8      qh      bit k of byte j: bit 8 of entry 8 j + k
74      32     signs   bit k of byte j: value 8 j + k is negative
106     4      scales  byte j: scale of group 2 j in bits 0-3, of group 2 j + 1 in bits 4-7

value = d * (1 + 2 * scale) * entry * sign
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.grids import gather, signs

BLOCK = layout("IQ3_S", [("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-15, 15], scale (n, 8)."""
    high = unpack(blocks["qh"], run=1, bits=1).astype(np.uint16)
    codes = gather("IQ3_S", high << 8 | blocks["qs"])
    codes *= signs(blocks["signs"])
    scales = unpack(blocks["scales"], run=1, bits=4) * 2 + 1
    return Integers(codes, f32(blocks["d"])[:, None] * f32(scales))


FORMAT = Format(by_name("IQ3_S"), BLOCK, dequantize)
