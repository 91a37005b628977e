"""IQ4_XS: 256 values of 4 bits in 8 groups, with IQ4_NL's levels and a scale of 6 bits a group; 4.25 bits a value.

offset  bytes  field  meaning
0       2      d      scale of the scales, float16
2       2      high   little-endian word: bits 2 g and 2 g + 1: bits 4-5 of the scale of group g
4       4      low    byte j: low 4 bits of the scale of group 2 j in bits 0-3, of group 2 j + 1 in bits 4-7
8       128    qs     16 bytes for each group: its first 16 values in bits 0-3, the others in bits 4-7

value = (d * (scale - 32)) * LEVELS[q]
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.iq4_nl import LEVELS, TARGETS, nearest, snap
from localllm.quant.search import fit_scale

BLOCK = layout("IQ4_XS", [("d", "<f2"), ("high", "u1", 2), ("low", "u1", 4), ("qs", "u1", 128)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(Integers(LEVELS[unpack(blocks["qs"], run=16, bits=4)], factors(blocks)))


def quantize(values: Float) -> Blocks:
    """(n, 256) -> (n,)."""
    x = values.reshape(-1, 8, 32)
    scale = fit_scale(x, np.square(x), snap, TARGETS)
    peak = np.take_along_axis(scale, np.abs(scale).argmax(axis=1, keepdims=True), axis=1)
    blocks = np.empty(len(values), BLOCK)
    blocks["d"] = f16(peak[:, 0] / np.float32(-32))
    scales = np.clip(np.rint(scale * reciprocal(f32(blocks["d"]))[:, None]), -32, 31)
    raw = (scales + 32).astype(np.uint8)
    blocks["low"], blocks["high"] = pack(raw & 15, run=1, bits=4), pack(raw >> 4, run=1, bits=2)
    codes = nearest(x * reciprocal(factors(blocks))[..., None])
    blocks["qs"] = pack(codes.reshape(-1, 256), run=16, bits=4)
    return blocks


def factors(blocks: Blocks) -> Float:
    """The scale (n, 8) of each group, as float32."""
    raw = unpack(blocks["low"], run=1, bits=4) | unpack(blocks["high"], run=1, bits=2) << 4
    return f32(blocks["d"])[:, None] * f32(raw.view(np.int8) - np.int8(32))


FORMAT = Format(by_name("IQ4_XS"), BLOCK, dequantize, quantize)
