"""What both kernels of attention share: the blocks of vectors they compute with, and the numbers of the rule.

The rule that makes them agree bit for bit: keys come in tiles of TILE, aligned to absolute positions. In a tile, s[k] is one chain of fused
multiply-adds over d, m the maximum over the visible keys, p[k] = exp(s[k] - m), l a fixed tree over p (k with k + 16, these with k + 32,
then halves of 16), o[d] one chain over the visible keys in rising order. Tiles are merged in rising order:
m' = max(m, m_t), c = exp(m - m'), c_t = exp(m_t - m'), l = fma(l_t, c_t, l*c), o = fma(o_t, c_t, o*c), from m = LOWEST, l = o = 0.
exp is ``maths.decay``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import float32, types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.ir import (
    F32,
    FLOATS,
    I1,
    I16,
    apart,
    fused,
    load,
    offset,
    pack,
    shuffle,
    splat,
    store,
    unpack,
)

LOWEST = float32(-1e30)
HIDDEN = float32(float("-inf"))
"""The score of a key that is not seen: its exp is exactly 0."""


def _chosen(b: Any, bits: Any) -> Any:
    """The lanes of 16 whose bits of an integer are set."""
    return b.bitcast(b.trunc(bits, I16), ir.VectorType(I1, 16))


def _rows_update(heads: int, b: Any, acc: Any, q: Any, q_stride: Any, p: Any) -> tuple[list[Any], list[Any]]:
    """acc[j*heads + i] + v_i * x_j, and acc, with v_i the vector at q + i*q_stride and x_j the float at p + 4*j."""
    old = unpack(b, acc)
    columns = len(old) // heads
    v = [load(b, apart(b, q, q_stride, i), FLOATS.ll) for i in range(heads)]
    x = [splat(b, load(b, offset(b, p, 4 * j), F32), 16) for j in range(columns)]
    return [fused(b, v[n % heads], x[n // heads], a) for n, a in enumerate(old)], old


def rows_fma(heads: int) -> Any:
    """An intrinsic (acc, q, q_stride, p) for vectors of queries of some heads: acc[j*heads + i] += v_i * x_j, with v_i the vector at
    q + i*q_stride and x_j the float at p + 4*j."""

    @intrinsic
    def f(typing: Any, acc: Any, q: Any, q_stride: Any, p: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            return pack(b, _rows_update(heads, b, *args)[0])

        return acc(acc, *[types.int64] * 3), generate

    return f


def rows_fma_seen(heads: int) -> Any:
    """The same, with a fifth argument: lanes whose bit is not set keep what they have, whatever the float is."""

    @intrinsic
    def f(typing: Any, acc: Any, q: Any, q_stride: Any, p: Any, bits: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            new, old = _rows_update(heads, b, *args[:4])
            seen = _chosen(b, args[4])
            return pack(b, [b.select(seen, n, o) for n, o in zip(new, old, strict=True)])

        return acc(acc, *[types.int64] * 4), generate

    return f


def rows_merge(heads: int) -> Any:
    """An intrinsic (acc, factors, factors_stride, o, o_stride, bits): the vector at o + i*o_stride + 64*j becomes
    acc[j*heads + i] * new_i + itself * old_i in the lanes whose bits are set. new_i and old_i are the vectors at
    factors + i*factors_stride and behind it."""

    @intrinsic
    def f(typing: Any, acc: Any, factors: Any, factors_stride: Any, o: Any, o_stride: Any, bits: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            tile, columns = unpack(b, args[0]), acc.count // heads
            seen = _chosen(b, args[5])
            for i in range(heads):
                factor = apart(b, args[1], args[2], i)
                new, old = load(b, factor, FLOATS.ll), load(b, offset(b, factor, 64), FLOATS.ll)
                for j in range(columns):
                    at = offset(b, apart(b, args[3], args[4], i), 64 * j)
                    before = load(b, at, FLOATS.ll)
                    store(b, b.select(seen, fused(b, tile[j * heads + i], new, b.fmul(before, old)), before), at)
            return context.get_dummy_value()

        return types.none(acc, *[types.int64] * 5), generate

    return f


@intrinsic
def tile_rescaled(typing: Any, acc: Any, address: Any, new: Any, old: Any) -> Any:
    """acc[j] = (the vector at address + 64*j) * new + acc[j] * old."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        out = []
        for j, a in enumerate(unpack(b, args[0])):
            out.append(fused(b, load(b, offset(b, args[1], 64 * j), FLOATS.ll), args[2], b.fmul(a, args[3])))
        return pack(b, out)

    return acc(acc, types.int64, FLOATS, FLOATS), generate


def _folded(step: Any) -> Any:
    @intrinsic
    def f(typing: Any, tile: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            values = unpack(b, args[0])
            while len(values) > 1:
                half = len(values) // 2
                values = [step(b, values[i], values[i + half]) for i in range(half)]
            return values[0]

        return FLOATS(tile), generate

    return f


tile_sum = _folded(lambda b, x, y: b.fadd(x, y))
"""Sum of a tile's vectors, by the tree that ``hsum`` uses for lanes: i with i + n/2."""
tile_max = _folded(lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))


@intrinsic
def tile_turned(typing: Any, tile: Any) -> Any:
    """16 vectors, transposed: lane i of vector j becomes lane j of vector i."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        rows = unpack(b, args[0])
        for _ in range(4):  # a perfect shuffle, four times
            mixed = []
            for i in range(8):
                for part in (range(8), range(8, 16)):
                    mixed.append(shuffle(b, rows[i], rows[i + 8], [k for j in part for k in (j, j + 16)]))
            rows = mixed
        return pack(b, rows)

    return tile(tile), generate
