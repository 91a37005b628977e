"""Q5_K: 256 values of 5 bits in 8 groups, each with a scale and a minimum of 6 bits.

offset  bytes  field   meaning
0       2      d       scale of the scales, float16
2       2      dmin    scale of the minimums, float16
4       12     scales  scales and minimums, packed as in Q4_K
16      32     qh      bit k of byte j: bit 4 of value 32 k + j
48      128    qs      32 bytes for each two groups: bits 0-3 are low bits of the first one's values, bits 4-7 of the second one's

value = (d * scale) * q - dmin * minimum
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import pack, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.q4_k import encode, factors

BLOCK = layout("Q5_K", [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", (3, 4)), ("qh", "u1", 32), ("qs", "u1", 128)])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 256) -> (n,)."""
    blocks = np.empty(len(values), BLOCK)
    codes = encode(values, 31, blocks)
    blocks["qh"], blocks["qs"] = pack(codes >> 4, run=32, bits=1), pack(codes & 15, run=32, bits=4)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [0, 31], scale and minimum (n, 8)."""
    codes = unpack(blocks["qs"], run=32, bits=4)
    codes |= unpack(blocks["qh"], run=32, bits=1) << 4
    return Integers(codes.view(np.int8), *factors(blocks))


FORMAT = Format(by_name("Q5_K"), BLOCK, dequantize, quantize)
