"""IQ2_XS: 256 values in 16 groups of 16, from a codebook of 512 entries of 8 values; 2.31 bits a value.

offset  bytes  field   meaning
0       2      d       scale, float16
2       64     qs      little-endian word for each 8 values: bits 0-8 entry, bits 9-15 signs (the eighth makes their number even)
66      8      scales  byte j: scale of group 2 j in bits 0-3, of group 2 j + 1 in bits 4-7

value = d * (0.5 + scale) / 4 * entry * sign
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.grids import gather, parity, signs

BLOCK = layout("IQ2_XS", [("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-43, 43], scale (n, 16)."""
    codes = gather("IQ2_XS", blocks["qs"] & 511)
    codes *= signs(parity(blocks["qs"] >> 9))
    scales = f32(unpack(blocks["scales"], run=1, bits=4)) + np.float32(0.5)
    return Integers(codes, f32(blocks["d"])[:, None] * scales * np.float32(0.25))


FORMAT = Format(by_name("IQ2_XS"), BLOCK, dequantize)
