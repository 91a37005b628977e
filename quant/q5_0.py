"""Q5_0: 32 values of 5 bits and a scale.

offset  bytes  field  meaning
0       2      d      scale, float16
2       4      qh     bit i of the little-endian word: bit 4 of value i
6       16     qs     byte j: low bits of value j in bits 0-3, of value j + 16 in bits 4-7

value = d * (q - 16)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout

BLOCK = layout("Q5_0", [("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 32)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 32) -> (n,): the value farthest from zero becomes q = 0 exactly."""
    peak = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
    scale = peak / np.float32(-16)
    codes = np.minimum(np.trunc(values * reciprocal(scale) + np.float32(16.5)), 31).astype(np.uint8)
    blocks = np.empty(len(values), BLOCK)
    blocks["d"] = f16(scale[:, 0])
    blocks["qh"], blocks["qs"] = pack(codes >> 4, run=1, bits=1), pack(codes & 15, run=16, bits=4)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 32) within [-16, 15], scale (n, 1)."""
    codes = unpack(blocks["qs"], run=16, bits=4)
    codes |= unpack(blocks["qh"], run=1, bits=1) << 4
    signed = codes.view(np.int8)
    signed -= 16
    return Integers(signed, f32(blocks["d"])[:, None])


FORMAT = Format(by_name("Q5_0"), BLOCK, dequantize, quantize)
