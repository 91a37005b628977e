"""F16: IEEE half precision, little-endian.

offset  bytes  field  meaning
0       2      x      the value
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32
from localllm.quant.blocks import Blocks, Float, Format, layout

BLOCK = layout("F16", [("x", "<f2")])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 1)."""
    return f32(blocks["x"])[:, None]


def quantize(values: Float) -> Blocks:
    """(n, 1) -> (n,)."""
    blocks = np.empty(len(values), BLOCK)
    blocks["x"] = values[:, 0]
    return blocks


FORMAT = Format(by_name("F16"), BLOCK, dequantize, quantize)
