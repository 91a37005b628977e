"""Scores from quantised keys: integer dot products of 32 values at a time, times the steps of both sides, in one chain over the blocks:
s = fma(float(dot) * key's step, query's step, s). The codes of keys are unsigned; a query's third part takes back what was added to them.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.dot import dot4
from localllm.backends.cpu.kernels.grid import grid_store
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import (
    BYTES,
    F16,
    F32,
    FLOATS,
    HALVES,
    I32,
    INTS,
    TARGET,
    apart,
    constant,
    fused,
    load,
    offset,
    pack,
    shift,
    splat,
    unpack,
    widen_half,
)
from localllm.backends.cpu.kernels.tile import prefetcher, zeros
from localllm.backends.cpu.kv_types import BITS
from localllm.backends.cpu.records import TILE

_ROW = 64  # bytes of a vector of queries
_ROWS = 8 if TARGET.vnni512 else 2  # vectors of sums over many rows that the registers hold, as integers and as floats


def _parts(b: Any, kind: str, codes: Any) -> list[Any]:
    """64 bytes of codes as vectors of one code a byte."""
    codes = b.bitcast(codes, BYTES.ll)
    if kind == "q8_0":
        return [codes]
    low = constant(BYTES.ll, 15)
    return [b.and_(codes, low), b.and_(shift(b, codes, -4), low)]


def _dots(b: Any, kind: str, acc: Any, codes: list[Any], queries: list[Any]) -> Any:
    for u, s in zip(codes, queries, strict=True):
        acc = dot4(b, acc, u, s, kind == "q8_0")
    return acc


def _few_begin(m: int, n: int) -> Any:
    """An intrinsic (address, stride): integers (t, j), each the one at address + j*stride."""

    @intrinsic
    def f(typing: Any, p: Any, stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            return pack(b, [splat(b, load(b, apart(b, args[0], args[1], j), I32), 16) for j in range(n)] * m)

        return types.UniTuple(INTS, m * n)(types.int64, types.int64), generate

    return f


def _few_dot(kind: str, m: int) -> Any:
    """An intrinsic (acc, keys, gap, q, q_stride): integers (t, j) += 64 bytes of codes at keys + t*gap times the 4 codes of query j."""

    @intrinsic
    def f(typing: Any, acc: Any, keys: Any, gap: Any, q: Any, q_stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            n, old = acc.count // m, unpack(b, args[0])
            codes = [_parts(b, kind, load(b, apart(b, args[1], args[2], t), BYTES.ll)) for t in range(m)]
            at = [apart(b, args[3], args[4], j) for j in range(n)]
            queries = [[splat(b, load(b, offset(b, p, 16 * i), I32), 16) for i in range(len(codes[0]))] for p in at]
            return pack(b, [_dots(b, kind, old[t * n + j], codes[t], queries[j]) for t in range(m) for j in range(n)])

        return acc(acc, *[types.int64] * 4), generate

    return f


def _few_scaled(m: int) -> Any:
    """An intrinsic (acc, dots, steps, gap, q, q_stride): the chain; 16 keys' steps are at steps + t*gap, query j's at q + j*q_stride."""

    @intrinsic
    def f(typing: Any, acc: Any, dots: Any, steps: Any, gap: Any, q: Any, q_stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            n, old, found = acc.count // m, unpack(b, args[0]), unpack(b, args[1])
            keys = [widen_half(b, load(b, apart(b, args[2], args[3], t), HALVES.ll)) for t in range(m)]
            queries = [splat(b, load(b, apart(b, args[4], args[5], j), F32), 16) for j in range(n)]
            places = [(t, j) for t in range(m) for j in range(n)]
            scaled = [b.fmul(b.sitofp(v, FLOATS.ll), keys[t]) for v, (t, _) in zip(found, places, strict=True)]
            return pack(b, [fused(b, v, queries[j], a) for v, (_, j), a in zip(scaled, places, old, strict=True)])

        return acc(acc, dots, *[types.int64] * 4), generate

    return f


def few_scores(heads: int, vectors: int, kind: str) -> Any:
    """(q, k, d, wide, s, ahead): scores of a tile's keys for some heads, float32 [heads][TILE] at s, where lanes are keys; see
    ``attention_few``."""
    bits = BITS[kind]
    start, begin, dot, scaled, store, fetch = (
        zeros(FLOATS, vectors * heads),
        _few_begin(vectors, heads),
        _few_dot(kind, vectors),
        _few_scaled(vectors),
        grid_store(vectors),
        prefetcher(vectors if TARGET.avx2 else 0),
    )

    @helper
    def scores(q: int, k: int, d: int, wide: int, s: int, ahead: int) -> None:
        block = 2 * bits * wide  # bytes of 16 keys
        for i in range(0, 4, vectors):
            acc = start()
            p, steps, x = k + i * block, k + 4 * block + i * wide, q
            for j in range(wide // 32):
                dots = begin(q + wide + wide // 8 + 4 * j, 4 * d)
                for _ in range(bits):
                    fetch(ahead)
                    dots = dot(dots, p, block, x, 4 * d)
                    p += 64
                    x += 4
                    ahead += 64 * vectors
                x += 32 - 4 * bits
                acc = scaled(acc, dots, steps + 32 * j, wide, q + wide + 4 * j, 4 * d)
            store(acc, s + 64 * i, 4 * TILE)

    return scores


def _many_begin(heads: int, columns: int) -> Any:
    """An intrinsic (address, stride): integers [j*heads + i], each vector the one at address + i*stride."""

    @intrinsic
    def f(typing: Any, p: Any, stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            return pack(b, [load(b, apart(b, args[0], args[1], i), INTS.ll) for i in range(heads)] * columns)

        return types.UniTuple(INTS, heads * columns)(types.int64, types.int64), generate

    return f


def _many_dot(kind: str, heads: int) -> Any:
    """An intrinsic (acc, q, q_stride, p): integers [j*heads + i] += 4 codes of 16 queries at q + i*q_stride times those of the key at
    p + 4*j."""

    @intrinsic
    def f(typing: Any, acc: Any, q: Any, q_stride: Any, p: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            old = unpack(b, args[0])
            codes = [_parts(b, kind, splat(b, load(b, offset(b, args[3], 4 * j), I32), 16)) for j in range(len(old) // heads)]
            at = [apart(b, args[1], args[2], i) for i in range(heads)]
            queries = [[load(b, offset(b, x, 4 * _ROW * n), BYTES.ll) for n in range(len(codes[0]))] for x in at]
            return pack(b, [_dots(b, kind, a, codes[n // heads], queries[n % heads]) for n, a in enumerate(old)])

        return acc(acc, *[types.int64] * 3), generate

    return f


def _many_scaled(heads: int) -> Any:
    """An intrinsic (acc, dots, steps, q, q_stride): the chain, with key j's step at steps + 2*j and 16 queries' at q + i*q_stride."""

    @intrinsic
    def f(typing: Any, acc: Any, dots: Any, steps: Any, q: Any, q_stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            old, found = unpack(b, args[0]), unpack(b, args[1])
            keys = [splat(b, widen_half(b, load(b, offset(b, args[2], 2 * j), F16)), 16) for j in range(len(old) // heads)]
            queries = [load(b, apart(b, args[3], args[4], i), FLOATS.ll) for i in range(heads)]
            scaled = [b.fmul(b.sitofp(v, FLOATS.ll), keys[n // heads]) for n, v in enumerate(found)]
            return pack(b, [fused(b, v, queries[n % heads], a) for n, (v, a) in enumerate(zip(scaled, old, strict=True))])

        return acc(acc, dots, *[types.int64] * 3), generate

    return f


def many_scores(heads: int, kind: str, head_bytes: int) -> Any:
    """(q, q_step, k, d, wide, first, keys, s, ahead): [TILE][16 queries] scores of some heads, ``head_bytes`` apart, where lanes are
    queries; see ``attention_many``."""
    bits, columns = BITS[kind], _ROWS // heads
    start, begin, dot, scaled, store, fetch = (
        zeros(FLOATS, _ROWS),
        _many_begin(heads, columns),
        _many_dot(kind, heads),
        _many_scaled(heads),
        grid_store(columns),
        prefetcher(1 if TARGET.avx2 else 0),
    )

    @helper
    def scores(q: int, q_step: int, k: int, d: int, wide: int, first: int, keys: int, s: int, ahead: int) -> None:
        block = 2 * bits * wide
        scales, offsets = q + _ROW * (wide // 4), q + _ROW * (wide // 4 + wide // 32)
        for b in range(first // 16, (keys + 15) // 16):
            for c in range(0, 16, columns):
                acc = start()
                x, p, steps = q, k + b * block + 4 * c, k + 4 * block + b * wide + 2 * c
                for j in range(wide // 32):
                    dots = begin(offsets + _ROW * j, q_step)
                    for _ in range(bits):
                        fetch(ahead)
                        dots = dot(dots, x, q_step, p)
                        x += _ROW
                        p += 64
                        ahead += 8 * columns
                    x += _ROW * (8 - bits)
                    acc = scaled(acc, dots, steps + 32 * j, scales + _ROW * j, q_step)
                store(acc, s + _ROW * (16 * b + c), head_bytes)

    return scores
