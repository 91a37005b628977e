"""Packed values to unsigned bytes: for each way of packing a generator of the operands of one tile, 16 rows x 32 values.

An operand is 64 bytes, 4 values (4t .. 4t+3) of each of 16 rows; generators yield (t, operand) in the order
that loads are cheapest, t = 0..7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.dot import dot4, lookup
from localllm.backends.cpu.kernels.ir import BYTES, I32, constant, load, offset, pack, shift, splat, store, unpack

CODEBOOK = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The values of IQ4_NL and IQ4_XS; the code is the value + 128."""

Codes = Callable[[Any, Any], Iterator[tuple[int, Any]]]


def _mask(b: Any, x: Any, bits: int) -> Any:
    return b.and_(x, constant(BYTES.ll, bits))


def _nibbles(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    for t in range(4):
        v = load(b, offset(b, w, 64 * t), BYTES.ll)
        yield t, _mask(b, v, 15)
        yield t + 4, _mask(b, shift(b, v, -4), 15)


def _five(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    fifth = load(b, offset(b, w, 256), BYTES.ll)  # bit t of a byte belongs to operand t
    for t, low in _nibbles(b, w):
        yield t, b.or_(low, _mask(b, shift(b, fifth, 4 - t), 16))


def _six(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    high = [load(b, offset(b, w, 256 + 64 * i), BYTES.ll) for i in range(2)]  # bits 2k, 2k+1 belong to operand 4i + k
    for t, low in _nibbles(b, w):
        yield t, b.or_(low, _mask(b, shift(b, high[t // 4], 4 - 2 * (t % 4)), 48))


def _bytes(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    for t in range(8):
        yield t, load(b, offset(b, w, 64 * t), BYTES.ll)


def _codebook(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    table = [value + 128 for value in CODEBOOK]
    for t, index in _nibbles(b, w):
        yield t, lookup(b, table, index)


CODES: dict[str, Codes] = {"nibble": _nibbles, "five": _five, "six": _six, "byte": _bytes, "codebook": _codebook}


def dotter(codes: str, n: int, halves: bool, wide: bool) -> Any:
    """An intrinsic (acc, w, x): acc[j] += the tile at w . column j of the n at x. With ``halves`` acc has 2n elements, the sums of
    the first 16 values, then those of the last."""

    @intrinsic
    def f(typing: Any, acc: Any, w: Any, x: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            out = unpack(b, args[0])
            for t, u in CODES[codes](b, args[1]):
                for j in range(n):
                    k = j + n if halves and t >= 4 else j
                    s = splat(b, load(b, offset(b, args[2], 4 * n * t + 4 * j), I32), 16)
                    out[k] = dot4(b, out[k], u, s, wide)
            return pack(b, out)

        return acc(acc, types.int64, types.int64), generate

    return f


def unpacker(codes: str) -> Any:
    """An intrinsic (w, u): the tile at w to 512 bytes at u, operand t at u + 64*t."""

    @intrinsic
    def f(typing: Any, w: Any, u: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            for t, v in CODES[codes](b, args[0]):
                store(b, v, offset(b, args[1], 64 * t))
            return context.get_dummy_value()

        return types.none(types.int64, types.int64), generate

    return f
