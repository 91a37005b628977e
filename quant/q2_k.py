"""Q2_K: 256 values of 2 bits in 16 groups, each with a scale and a minimum of 4 bits.

offset  bytes  field   meaning
0       16     scales  group g: scale in bits 0-3, minimum in bits 4-7
16      64     qs      32 bytes for each half: bits 0-1 of all of them are its first 32 values, bits 2-3 the next, and so on
80      2      d       scale of the scales, float16
82      2      dmin    scale of the minimums, float16

value = (d * scale) * q - dmin * minimum
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.search import fit_affine, importance

BLOCK = layout("Q2_K", [("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 256) -> (n,)."""
    x = values.reshape(-1, 16, 16)
    scale, low = fit_affine(x, importance(x), 3, np.arange(2.5, 4.1, 0.1))
    blocks = np.empty(len(values), BLOCK)
    blocks["d"], blocks["dmin"] = f16(scale.max(axis=1) / 15), f16(low.max(axis=1) / 15)
    d, dmin = f32(blocks["d"])[:, None], f32(blocks["dmin"])[:, None]
    scales, minimums = np.minimum(np.rint(scale * reciprocal(d)), 15), np.minimum(np.rint(low * reciprocal(dmin)), 15)
    codes = np.rint((x + (dmin * minimums)[..., None]) * reciprocal(d * scales)[..., None])
    blocks["scales"] = scales + 16 * minimums
    blocks["qs"] = pack(np.clip(codes, 0, 3), run=32, bits=2)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [0, 3], scale and minimum (n, 16)."""
    scale = f32(blocks["d"])[:, None] * f32(blocks["scales"] & 15)
    low = f32(blocks["dmin"])[:, None] * f32(blocks["scales"] >> 4)
    return Integers(unpack(blocks["qs"], run=32, bits=2).view(np.int8), scale, -low)


FORMAT = Format(by_name("Q2_K"), BLOCK, dequantize, quantize)
