"""Taking bytes apart and putting them together, shared by the formats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm.errors import OptionError

_Bytes = NDArray[np.uint8]
_Float = NDArray[np.float32]


def unpack(packed: _Bytes, run: int, bits: int) -> _Bytes:
    """packed (n, m) -> codes (n, m * 8 / bits): of every ``run`` bytes first all lowest ``bits`` bits, then all next ones."""
    count, size = packed.shape
    if bits == 1 and run == 1:
        return np.unpackbits(packed, axis=1, bitorder="little")
    source = packed.reshape(count, size // run, run)
    codes = np.empty((count, size // run, 8 // bits, run), np.uint8)
    for plane in range(8 // bits):
        np.right_shift(source, plane * bits, out=codes[:, :, plane])
    codes &= (1 << bits) - 1
    return codes.reshape(count, -1)


def pack(codes: NDArray[Any], run: int, bits: int) -> _Bytes:
    """The inverse of ``unpack``; codes are integers of ``bits`` bits."""
    planes = codes.astype(np.uint8).reshape(len(codes), -1, 8 // bits, run)
    packed = planes[:, :, 0].copy()
    for plane in range(1, 8 // bits):
        packed |= planes[:, :, plane] << np.uint8(plane * bits)
    return packed.reshape(len(codes), -1)


def f32(half: NDArray[Any]) -> _Float:
    """Numbers of any type, such as float16 fields, as contiguous float32."""
    return half.astype(np.float32, order="C")


def f16(scale: _Float) -> NDArray[np.float16]:
    """Scales as float16; OptionError if one is beyond its range."""
    half = scale.astype(np.float16)
    if not np.isfinite(half).all():
        raise OptionError(f"values: a scale of {np.abs(scale).max():.6g} is needed, but the format's scales are float16, at most 65504")
    return half


def reciprocal(scale: _Float) -> _Float:
    """1 / scale, and 0 where that is not finite."""
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / scale
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def round_away(values: _Float) -> _Float:
    """To the nearest integer, halves away from zero, as C's roundf."""
    size = np.abs(values)
    floor = np.floor(size)
    rounded: _Float = np.copysign(floor + (size - floor >= 0.5), values)
    return rounded
