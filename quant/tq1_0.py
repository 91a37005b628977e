"""TQ1_0: 256 values -1, 0, 1 as base-3 digits, five to a byte, and a scale; 1.69 bits a value.

offset  bytes  field  meaning
0       32     qs     byte j: values j, j + 32, j + 64, j + 96, j + 128, the first of them the highest digit
32      16            byte j: values 160 + j, 176 + j, 192 + j, 208 + j, 224 + j
48      4      qh     byte j: values 240 + j, 244 + j, 248 + j, 252 + j, and a fifth digit zero
52      2      d      scale, float16

A byte holds its number t < 243 as the fraction ceil(256 t / 243) / 256: multiplied by 3^k, without what overflows,
the next digit is the integer part of three times that. value = d * (digit - 1)
"""

from __future__ import annotations

import numpy as np

from localllm.quant.base import by_name
from localllm.quant.bits import f16, f32, reciprocal, round_away
from localllm.quant.blocks import Blocks, Bytes, Float, Format, Integers, expand, layout

BLOCK = layout("TQ1_0", [("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2")])

_PARTS = ((0, 32, 5), (32, 16, 5), (48, 4, 4))  # first byte, bytes, digits used of a byte
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def dequantize(blocks: Blocks) -> Float:
    """(n,) -> (n, 256)."""
    return expand(integers(blocks))


def quantize(values: Float) -> Blocks:
    """(n, 256) -> (n,)."""
    scale = np.abs(values).max(axis=1, keepdims=True)
    digits = (round_away(values * reciprocal(scale)) + 1).astype(np.uint16)
    numbers, start = [], 0
    for _, size, used in _PARTS:
        part = digits[:, start : start + size * used].reshape(-1, used, size)
        numbers.append((part * _POWERS[::-1][:used, None].astype(np.uint16)).sum(axis=1, dtype=np.uint16))
        start += size * used
    packed = ((np.concatenate(numbers, axis=1).astype(np.uint32) * 256 + 242) // 243).astype(np.uint8)
    blocks = np.empty(len(values), BLOCK)
    blocks["qs"], blocks["qh"], blocks["d"] = packed[:, :48], packed[:, 48:], f16(scale[:, 0])
    return blocks


def integers(blocks: Blocks) -> Integers:
    """(n,) -> codes (n, 256) within [-1, 1], scale (n, 1)."""
    codes = np.empty((len(blocks), 256), np.int8)
    packed, start = np.concatenate([blocks["qs"], blocks["qh"]], axis=1), 0
    for first, size, used in _PARTS:
        digits = _digits(packed[:, first : first + size], used)
        codes[:, start : start + size * used] = digits.reshape(len(blocks), -1)
        start += size * used
    codes -= 1
    return Integers(codes, f32(blocks["d"])[:, None])


def _digits(packed: Bytes, used: int) -> Bytes:
    """(n, m) -> (n, used, m)."""
    rest = packed[:, None, :] * _POWERS[:used, None]
    # The integer part of rest * 3 / 256, without leaving 8 bits.
    return (rest >= 86).view(np.uint8) + (rest >= 171).view(np.uint8)


FORMAT = Format(by_name("TQ1_0"), BLOCK, dequantize, quantize)
