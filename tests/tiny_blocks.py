"""Random blocks of any storage format: random codes under scales that give the values a wanted deviation.

No quantiser is needed, and every code occurs, which weights rounded from a normal distribution would not give.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm import quant
from localllm.quant.base import by_name

Bytes = NDArray[np.uint8]

SCALES: dict[str, dict[int, float]] = {
    "F16": {},
    "BF16": {},
    "Q4_0": {0: 1},
    "Q4_1": {0: 1, 2: -7.5},
    "Q5_0": {0: 1},
    "Q5_1": {0: 1, 2: -15.5},
    "Q8_0": {0: 1},
    "Q2_K": {80: 1, 82: 1.5},
    "Q3_K": {108: 1},
    "Q4_K": {0: 1, 2: 7.5},
    "Q5_K": {0: 1, 2: 15.5},
    "Q6_K": {208: 1},
    "IQ1_S": {0: 1},
    "IQ2_XXS": {0: 1},
    "IQ2_XS": {0: 1},
    "IQ2_S": {0: 1},
    "IQ3_XXS": {0: 1},
    "IQ3_S": {0: 1},
    "IQ4_NL": {0: 1},
    "IQ4_XS": {0: 1},
    "TQ1_0": {52: 1},
    "TQ2_0": {64: 1},
    "Q1_0": {0: 1},
    "Q2_0": {0: 1},
}
"""Offset of each float16 scale or minimum in a block -> its share: minimums are such that the values' mean is near zero."""


def random(rng: np.random.Generator, shape: tuple[int, ...], type: str, deviation: float) -> Bytes:
    """Blocks (..., row bytes) of ``shape`` values with that standard deviation."""
    if type in ("F16", "BF16"):
        values = rng.standard_normal(shape, np.float32) * np.float32(deviation)
        return values.astype(np.float16).view(np.uint8) if type == "F16" else _bf16(values)
    info = by_name(type)
    count = math.prod(shape) // info.block_size
    blocks = rng.integers(0, 256, (count, info.block_bytes), np.uint8)
    _scale(blocks, type, 1.0)
    unit = float(quant.dequantize(blocks[:256], type).std())
    _scale(blocks, type, deviation / unit)
    return blocks.reshape(*shape[:-1], -1)


def _scale(blocks: Bytes, type: str, scale: float) -> None:
    if type == "MXFP4":
        blocks[:, 0] = 127 + round(math.log2(scale))
    elif type == "NVFP4":  # four scales with 3 bits of mantissa, the exponent biased by 7
        blocks[:, :4] = max(1, 7 + round(math.log2(scale))) * 8 + (blocks[:, :4] & 7)
    elif type == "IQ1_M":  # the float16 is spread over the high nibbles of four words
        words, bits = blocks[:, 48:].view(np.uint16), int(np.float16(scale).view(np.uint16))
        words[:] = words & 0x0FFF | np.array([bits << 12 & 0xF000, bits << 8 & 0xF000, bits << 4 & 0xF000, bits & 0xF000], np.uint16)
    for offset, share in SCALES.get(type, {}).items():
        blocks[:, offset : offset + 2] = np.array([scale * share], np.float16).view(np.uint8)


def _bf16(values: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values.view(np.uint16)[..., 1::2]).view(np.uint8)
