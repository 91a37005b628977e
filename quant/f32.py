"""F32: IEEE single precision, little-endian.

offset  bytes  field  meaning
0       4      x      the value
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f32
from localllm.quant.blocks import Blocks, Float, Format, layout

BLOCK = layout("F32", [("x", "<f4")])


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 1)."""
    return f32(blocks["x"])[:, None]


def quantize(values: Float) -> Blocks:
    """(n, 1) -> (n,)."""
    blocks = np.empty(len(values), BLOCK)
    blocks["x"] = values[:, 0]
    return blocks


FORMAT = Format(by_name("F32"), BLOCK, dequantize, quantize)
