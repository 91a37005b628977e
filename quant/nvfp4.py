"""NVFP4: 64 floats of 4 bits (E2M1) in 4 groups, each with a scale of 8 bits (E4M3 without sign).

offset  bytes  field  meaning
0       4      d      scale of each group: bits 3-6 exponent (bias 7), bits 0-2 mantissa; 0x7F, which is NaN in E4M3, counts as zero
4       32     qs     8 bytes for each group: its first 8 values in bits 0-3, the others in bits 4-7

value = scale / 2 * LEVELS[q], with MXFP4's doubled levels. A model's tensor may have a further factor, kept in a tensor of its own.
"""

from __future__ import annotations

import numpy as np

from localllm.errors import OptionError
from localllm.quant.base import by_name
from localllm.quant.bits import pack, reciprocal, unpack
from localllm.quant.blocks import Blocks, Float, Format, Integers, expand, layout
from localllm.quant.mxfp4 import LEVELS, nearest

BLOCK = layout("NVFP4", [("d", "u1", 4), ("qs", "u1", 32)])


def _halves() -> Float:
    """Half of every scale that a byte can hold."""
    byte = np.arange(256, dtype=np.int32)
    exponent, mantissa = byte >> 3 & 15, (byte & 7).astype(np.float32)
    scale = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(1 + mantissa / 8, exponent - 7))
    scale[0x7F] = 0
    half: Float = scale.astype(np.float32) / np.float32(2)
    return half


_HALF = _halves()
_LARGEST = 448 * 6
_BETWEEN = (_HALF[1:0x7F] + _HALF[:0x7E]) / 2


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 64)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 64) -> (n,): the scale nearest to a sixth of the largest absolute value."""
    x = values.reshape(-1, 4, 16)
    peak = np.abs(x).max(axis=-1)
    if peak.size and peak.max() > _LARGEST:
        raise OptionError(f"values: NVFP4 holds values up to {_LARGEST}, not {peak.max():.6g}; divide the tensor by a factor first")
    blocks = np.empty(len(values), BLOCK)
    blocks["d"] = np.searchsorted(_BETWEEN, peak / 12, side="right")
    codes = nearest(x * reciprocal(_HALF[blocks["d"]])[..., None])
    blocks["qs"] = pack(codes.reshape(-1, 64), run=8, bits=4)
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 64) within [-12, 12], scale (n, 4)."""
    return Integers(LEVELS[unpack(blocks["qs"], run=8, bits=4)], _HALF[blocks["d"]])


FORMAT = Format(by_name("NVFP4"), BLOCK, dequantize, quantize)
