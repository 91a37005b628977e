"""Q4_K: 256 values of 4 bits in 8 groups, each with a scale and a minimum of 6 bits.

offset  bytes  field   meaning
0       2      d       scale of the scales, float16
2       2      dmin    scale of the minimums, float16
4       4      scales  bits 0-5: scales of groups 0-3; bits 6-7: bits 4-5 of the scales of groups 4-7
8       4              bits 0-5: minimums of groups 0-3; bits 6-7: bits 4-5 of the minimums of groups 4-7
12      4              bits 0-3: low bits of the scales of groups 4-7; bits 4-7: of their minimums
16      128    qs      32 bytes for each two groups: bits 0-3 are the first one's values, bits 4-7 the second one's

value = (d * scale) * q - dmin * minimum
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Bytes, Float, Format, Integers, expand, layout
from localllm.quant.search import fit_affine, importance

BLOCK = layout("Q4_K", [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (3, 4)), ("qs", "u1", 128)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 256) -> (n,)."""
    blocks = np.empty(len(values), BLOCK)
    blocks["qs"] = pack(encode(values, 15, blocks), run=32, bits=4)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [0, 15], scale and minimum (n, 8)."""
    return Integers(unpack(blocks["qs"], run=32, bits=4).view(np.int8), *factors(blocks))


def factors(blocks: Blocks) -> tuple[Float, Float]:
    """The scale and the minimum (n, 8) of each group, as float32; the minimum is negative, to be added."""
    first, second, rest = (blocks["scales"][:, part] for part in range(3))
    scales = np.concatenate([first & 63, (rest & 15) | (first >> 6 << 4)], axis=1)
    minimums = np.concatenate([second & 63, (rest >> 4) | (second >> 6 << 4)], axis=1)
    return f32(blocks["d"])[:, None] * f32(scales), -(f32(blocks["dmin"])[:, None] * f32(minimums))


def encode(values: Float, top: int, blocks: Blocks) -> Bytes:
    """Set d, dmin and scales of ``blocks`` for values (n, 256) -> codes (n, 256) within [0, top]."""
    x = values.reshape(-1, 8, 32)
    scale, low = fit_affine(x, importance(x), top, top + np.arange(-1, 1.1, 0.1))
    blocks["d"], blocks["dmin"] = f16(scale.max(axis=1) / 63), f16(low.max(axis=1) / 63)
    scales, minimums = _six_bits(scale, f32(blocks["d"])), _six_bits(low, f32(blocks["dmin"]))
    blocks["scales"][:, 0] = scales[:, :4] | scales[:, 4:] >> 4 << 6
    blocks["scales"][:, 1] = minimums[:, :4] | minimums[:, 4:] >> 4 << 6
    blocks["scales"][:, 2] = (scales[:, 4:] & 15) | minimums[:, 4:] << 4
    scale, minimum = factors(blocks)
    codes: Bytes = np.clip(np.rint((x - minimum[..., None]) * reciprocal(scale)[..., None]), 0, top).astype(np.uint8)
    return codes.reshape(-1, 256)


def _six_bits(factor: Float, unit: Float) -> Bytes:
    codes: Bytes = np.minimum(np.rint(factor * reciprocal(unit)[:, None]), 63).astype(np.uint8)
    return codes


FORMAT = Format(by_name("Q4_K"), BLOCK, dequantize, quantize)
