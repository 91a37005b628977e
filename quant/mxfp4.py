"""MXFP4 (OCP Microscaling, v1.0): 32 floats of 4 bits (E2M1) and a power of two.

offset  bytes  field  meaning
0       1      e      scale: 2 ** (e - 127)
1       16     qs     byte j: value j in bits 0-3, value j + 16 in bits 4-7

value = 2 ** (e - 128) * LEVELS[q], where LEVELS are the E2M1 floats, doubled to make them integers
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Bytes, Float, Format, Integers, expand, layout

BLOCK = layout("MXFP4", [("e", "u1"), ("qs", "u1", 16)])

LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)

_HALF = np.ldexp(np.float32(1), np.arange(-128, 128, dtype=np.int32))
_BETWEEN = (LEVELS[1:8].astype(np.float32) + LEVELS[:7]) / 2


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 32)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 32) -> (n,): the exponent of the largest absolute value, less two, is the scale's."""
    peak = np.abs(values).max(axis=1)
    exponent = np.frexp(peak)[1] - 1
    blocks = np.empty(len(values), BLOCK)
    blocks["e"] = np.where(peak > 0, np.clip(exponent - 2 + 127, 0, 254), 0)
    blocks["qs"] = pack(nearest(values * reciprocal(_HALF[blocks["e"]])[:, None]), run=16, bits=4)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 32) within [-12, 12], scale (n, 1)."""
    return Integers(LEVELS[unpack(blocks["qs"], run=16, bits=4)], _HALF[blocks["e"]][:, None])


def nearest(x: Float) -> Bytes:
    """The number of the level nearest to each value; the smaller one of two as near."""
    code: Bytes = np.searchsorted(_BETWEEN, np.abs(x)).astype(np.uint8)
    code[(x < 0) & (code > 0)] += 8
    return code


FORMAT = Format(by_name("MXFP4"), BLOCK, dequantize, quantize)
