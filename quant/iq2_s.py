"""IQ2_S: 256 values in 16 groups of 16, from a codebook of 1024 entries of 8 values; 2.56 bits a value.

offset  bytes  field   meaning
0       2      d       scale, float16
2       32     qs      low 8 bits of the entry of each 8 values
34      32     signs   bit k of byte j: value 8 j + k is negative
66      8      qh      byte j: bits 8-9 of entries 4 j to 4 j + 3, from bit 0 on
74      8      scales  byte j: scale of group 2 j in bits 0-3, of group 2 j + 1 in bits 4-7

value = d * (0.5 + scale) / 4 * entry * sign
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.grids import gather, signs

BLOCK = layout("IQ2_S", [("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-43, 43], scale (n, 16)."""
    high = unpack(blocks["qh"], run=1, bits=2).astype(np.uint16)
    codes = gather("IQ2_S", high << 8 | blocks["qs"])
    codes *= signs(blocks["signs"])
    scales = f32(unpack(blocks["scales"], run=1, bits=4)) + np.float32(0.5)
    return Integers(codes, f32(blocks["d"])[:, None] * scales * np.float32(0.25))


FORMAT = Format(by_name("IQ2_S"), BLOCK, dequantize)
