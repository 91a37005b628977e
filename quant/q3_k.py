"""Q3_K: 256 values of 3 bits in 16 groups, each with a signed scale of 6 bits.

offset  bytes  field   meaning
0       32     hmask   bit k of byte j: bit 2 of value 32 k + j
32      64     qs      32 bytes for each half: bits 0-1 of all of them are its first 32 values, bits 2-3 the next, and so on
96      8      low     low 4 bits of the scales: groups 0-7 in bits 0-3, 8-15 in bits 4-7
104     4      high    high 2 bits of the scales: groups 0-3 in bits 0-1, 4-7 in bits 2-3, and so on
108     2      d       scale of the scales, float16

value = (d * (scale - 32)) * (q - 4)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.search import fit_scale

BLOCK = layout("Q3_K", [("hmask", "u1", 32), ("qs", "u1", 64), ("low", "u1", 8), ("high", "u1", 4), ("d", "<f2")])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 256) -> (n,)."""
    x = values.reshape(-1, 16, 16)
    scale = fit_scale(x, np.square(x), _snap, np.arange(-4.9, -3, 0.1))
    peak = np.take_along_axis(scale, np.abs(scale).argmax(axis=1, keepdims=True), axis=1)
    blocks = np.empty(len(values), BLOCK)
    blocks["d"] = f16(peak[:, 0] / np.float32(-32))
    d = f32(blocks["d"])[:, None]
    scales = np.clip(np.rint(scale * reciprocal(d)), -32, 31)
    codes = (_snap(x * reciprocal(d * scales)[..., None]) + 4).astype(np.uint8).reshape(-1, 256)
    raw = (scales + 32).astype(np.uint8)
    blocks["low"], blocks["high"] = pack(raw & 15, run=8, bits=4), pack(raw >> 4, run=4, bits=2)
    blocks["hmask"], blocks["qs"] = pack(codes >> 2, run=32, bits=1), pack(codes & 3, run=32, bits=2)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-4, 3], scale (n, 16)."""
    raw = unpack(blocks["low"], run=8, bits=4) | unpack(blocks["high"], run=4, bits=2) << 4
    scale = f32(blocks["d"])[:, None] * f32(raw.view(np.int8) - np.int8(32))
    codes = unpack(blocks["qs"], run=32, bits=2)
    codes |= unpack(blocks["hmask"], run=32, bits=1) << 2
    signed = codes.view(np.int8)
    signed -= 4
    return Integers(signed, scale)


def _snap(x: Float) -> Float:
    return np.clip(np.rint(x), np.float32(-4), np.float32(3))


FORMAT = Format(by_name("Q3_K"), BLOCK, dequantize, quantize)
