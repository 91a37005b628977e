"""IQ3_XXS: 256 values in 8 groups of 32, from a codebook of 256 entries of 4 values; 3.06 bits a value.

offset  bytes  field  meaning
0       2      d      scale, float16
2       64     qs     entry of each 4 values
66      32     words  little-endian word for each group: bits 0-27: 7 bits of signs for each 8 values
                      (the eighth makes their number even), bits 28-31: scale

value = d * (0.5 + scale) / 2 * entry * sign
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.grids import gather, parity, signs

BLOCK = layout("IQ3_XXS", [("d", "<f2"), ("qs", "u1", 64), ("words", "<u4", 8)])

_SHIFTS = np.array([0, 7, 14, 21], np.uint32)


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-62, 62], scale (n, 8)."""
    words = blocks["words"]
    codes = gather("IQ3_XXS", blocks["qs"])
    codes *= signs(parity(words[:, :, None] >> _SHIFTS & 127).reshape(len(blocks), 32))
    scale = f32(blocks["d"])[:, None] * (f32(words >> 28) + np.float32(0.5)) * np.float32(0.5)
    return Integers(codes, scale)


FORMAT = Format(by_name("IQ3_XXS"), BLOCK, dequantize)
