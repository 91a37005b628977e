"""Packed values to unsigned bytes: for each way of packing a generator of the operands of one tile, 16 rows x 32 values.

An operand is 64 bytes, 4 values (4t .. 4t+3) of each of 16 rows; generators yield (t, operand), t = 0..7 in the order that bytes lie in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.dot import dot4, lookup
from localllm.backends.cpu.kernels.ir import BYTES, I32, INTS, constant, load, load_in_order, offset, pack, shift, splat, store, unpack

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
IQ2 = (8, 25, 43, 0, -8, -25, -43, 0)
IQ3_XXS = (4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62)
IQ3_S = (1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15)
"""The values that codes of 3 or 4 bits stand for; those of a grid's values have their sign in the highest bit."""

Codes = Callable[[Any, Any], Iterator[tuple[int, Any]]]


def _next(b: Any, w: Any, i: int = 0) -> Any:
    """The i-th 64 bytes behind w: all of a tile are read in their order."""
    return load_in_order(b, offset(b, w, 64 * i), BYTES.ll)


def _mask(b: Any, x: Any, bits: int) -> Any:
    return b.and_(x, constant(BYTES.ll, bits))


def _placed(b: Any, x: Any, at: int, to: int, bits: int) -> Any:
    """So many bits of every byte from one place to another, all others zero."""
    return _mask(b, shift(b, x, to - at), ((1 << bits) - 1) << to)


def _one(to: int) -> Codes:
    def codes(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
        v = _next(b, w)
        for t in range(8):
            yield t, _placed(b, v, t, to, 1)

    return codes


def _two(to: int) -> Codes:
    def codes(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
        for i in range(2):
            v = _next(b, w, i)
            for k in range(4):
                yield 4 * i + k, _placed(b, v, 2 * k, to, 2)

    return codes


def _three(to: int, third: int) -> Codes:
    """``to``: where the lower two bits go, ``third``: where the highest does."""

    def codes(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
        plane = _next(b, w)  # bit t of a byte belongs to operand t
        for t, low in _two(to)(b, offset(b, w, 64)):
            yield t, b.or_(low, _placed(b, plane, t, third, 1))

    return codes


def _nibbles(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    for t in range(4):
        v = _next(b, w, t)
        yield t, _mask(b, v, 15)
        yield t + 4, _mask(b, shift(b, v, -4), 15)


def _five(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    fifth = _next(b, w)  # bit t of a byte belongs to operand t
    for t, low in _nibbles(b, offset(b, w, 64)):
        yield t, b.or_(low, _placed(b, fifth, t, 4, 1))


def _six(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    high = [_next(b, w, i) for i in range(2)]  # bits 2k, 2k+1 belong to operand 4i + k
    for t, low in _nibbles(b, offset(b, w, 128)):
        yield t, b.or_(low, _placed(b, high[t // 4], 2 * (t % 4), 4, 2))


def _bytes(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
    for t in range(8):
        yield t, _next(b, w, t)


def _table(codes: Codes, values: Sequence[int], plus: int) -> Codes:
    table = [value + plus for value in values] * (16 // len(values))

    def found(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
        for t, index in codes(b, w):
            yield t, lookup(b, table, index)

    return found


def _plus(codes: Codes, plus: int) -> Codes:
    def more(b: Any, w: Any) -> Iterator[tuple[int, Any]]:
        for t, v in codes(b, w):
            yield t, b.add(v, constant(BYTES.ll, plus))

    return more


CODES: dict[str, Codes] = {
    "one": _one(4),
    "two": _two(0),
    "ternary": _two(3),
    "three": _three(3, 5),
    "nibble": _nibbles,
    "five": _five,
    "six": _six,
    "byte": _bytes,
    "codebook": _table(_nibbles, IQ4, 128),
    "e2m1": _table(_nibbles, E2M1, 16),
    "e2m1_halves": _table(_nibbles, E2M1, 32),
    "iq1_m": _plus(_three(3, 1), 23),
    "iq2": _table(_three(0, 2), IQ2, 128),
    "iq2_halves": _table(_three(0, 2), IQ2, 64),
    "iq3_xxs": _table(_nibbles, IQ3_XXS, 128),
    "iq3_s": _table(_nibbles, IQ3_S, 16),
}
"""Signs and small values lie so high in their bytes that their offset is one of those that activations come with (layout.py); the factor
that this brings, 8, is in the layout's unit."""


@intrinsic
def _pairs_dotter(typing: Any, acc: Any, w: Any, x: Any) -> Any:
    """The dotter of "ternary" for one column. Pairs are multiplied where they lie, but for one shift, and the sums are moved to where the
    codes would have been: for one column this is less to do."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        pairs = [shift(b, v, -4 * high) for v in (_next(b, args[1]), _next(b, args[1], 1)) for high in range(2)]
        sums = constant(INTS.ll, 0)
        for k, doublings in enumerate((2, 1)):  # 4 times what lies at bit 0, and once what lies at bit 2; then both twice
            for i, v in enumerate(pairs):
                s = splat(b, load(b, offset(b, args[2], 4 * (2 * i + k)), I32), 16)
                sums = dot4(b, sums, _mask(b, v, 3 << 2 * k), s)
            sums = b.shl(sums, constant(INTS.ll, doublings))
        return pack(b, [b.add(sums, *unpack(b, args[0]))])

    return acc(acc, types.int64, types.int64), generate


def dotter(codes: str, n: int, halves: bool, wide: bool, tile: int = 0) -> Any:
    """An intrinsic (acc, w, x): acc[j] += the tile at w . column j of the n at x, of a tile of activations of n columns or of ``tile``.
    With ``halves`` acc has 2n elements, the sums of the first 16 values, then those of the last."""
    along = 4 * (tile or n)
    if codes == "ternary" and along == 4:
        return _pairs_dotter

    @intrinsic
    def f(typing: Any, acc: Any, w: Any, x: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            out = unpack(b, args[0])
            for t, u in CODES[codes](b, args[1]):
                for j in range(n):
                    k = j + n if halves and t >= 4 else j
                    s = splat(b, load(b, offset(b, args[2], along * t + 4 * j), I32), 16)
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
