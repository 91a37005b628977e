"""IQ2_XXS: 256 values in 8 groups of 32, from a codebook of 256 entries of 8 values; 2.06 bits a value.

offset  bytes  field   meaning
0       2      d       scale, float16
2       8 x 8  groups  four bytes: entry of each 8 values; then a little-endian word:
                       bits 0-27: 7 bits of signs for each 8 values (the eighth makes their number even), bits 28-31: scale

value = d * (0.5 + scale) / 4 * entry * sign
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.grids import gather, parity, signs

BLOCK = layout("IQ2_XXS", [("d", "<f2"), ("groups", [("entry", "u1", 4), ("signs", "<u4")], 8)])

_SHIFTS = np.array([0, 7, 14, 21], np.uint32)


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-43, 43], scale (n, 8)."""
    words = blocks["groups"]["signs"]
    masks = parity(words[:, :, None] >> _SHIFTS & 127).reshape(len(blocks), 32)
    codes = gather("IQ2_XXS", blocks["groups"]["entry"].reshape(len(blocks), 32))
    codes *= signs(masks)
    scale = f32(blocks["d"])[:, None] * (f32(words >> 28) + np.float32(0.5)) * np.float32(0.25)
    return Integers(codes, scale)


FORMAT = Format(by_name("IQ2_XXS"), BLOCK, dequantize)
