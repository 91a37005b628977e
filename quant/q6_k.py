"""Q6_K: 256 values of 6 bits in 16 groups, each with a signed scale of 8 bits.

offset  bytes  field   meaning
0       128    ql      64 bytes for each half: bits 0-3 are low bits of its first 64 values, bits 4-7 of the other 64
128     64     qh      32 bytes for each half: bits 0-1 are high bits of its first 32 values, bits 2-3 of the next, and so on
192     16     scales  scale of each group, signed
208     2      d       scale of the scales, float16

value = (d * scale) * (q - 32)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.search import fit_scale

BLOCK = layout("Q6_K", [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 256) -> (n,)."""
    x = values.reshape(-1, 16, 16)
    scale = fit_scale(x, np.square(x), _snap, np.arange(-32.9, -31, 0.1))
    peak = np.take_along_axis(scale, np.abs(scale).argmax(axis=1, keepdims=True), axis=1)
    blocks = np.empty(len(values), BLOCK)
    blocks["d"] = f16(peak[:, 0] / np.float32(-128))
    d = f32(blocks["d"])[:, None]
    scales = np.clip(np.rint(scale * reciprocal(d)), -128, 127)
    codes = (_snap(x * reciprocal(d * scales)[..., None]) + 32).astype(np.uint8).reshape(-1, 256)
    blocks["scales"] = scales
    blocks["ql"], blocks["qh"] = pack(codes & 15, run=64, bits=4), pack(codes >> 4, run=32, bits=2)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-32, 31], scale (n, 16)."""
    codes = unpack(blocks["ql"], run=64, bits=4)
    codes |= unpack(blocks["qh"], run=32, bits=2) << 4
    signed = codes.view(np.int8)
    signed -= 32
    return Integers(signed, f32(blocks["d"])[:, None] * f32(blocks["scales"]))


def _snap(x: Float) -> Float:
    return np.clip(np.rint(x), -32, 31)


FORMAT = Format(by_name("Q6_K"), BLOCK, dequantize, quantize)
