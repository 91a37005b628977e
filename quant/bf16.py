"""BF16: the upper half of an IEEE single, little-endian.

offset  bytes  field  meaning
0       2      x      sign, 8 bits of exponent, 7 bits of mantissa
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.blocks import Blocks, Float, Format, layout

BLOCK = layout("BF16", [("x", "<u2")])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 1)."""
    return (blocks["x"].astype(np.uint32) << 16).view(np.float32)[:, None]


def quantize(values: Float) -> Blocks:
    """(n, 1) -> (n,): to nearest, ties to even; a NaN stays one, made quiet."""
    bits = values[:, 0].view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    blocks = np.empty(len(values), BLOCK)
    blocks["x"] = np.where(np.isnan(values[:, 0]), (bits >> 16) | 64, rounded)
    return blocks


FORMAT = Format(by_name("BF16"), BLOCK, dequantize, quantize)
