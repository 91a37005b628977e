"""Before attention: norm of each head, rotary embedding, scale of the queries, and storing of keys and values in the cache's pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import int32

from localllm.backends.cpu.arguments import ROPE_STORE
from localllm.backends.cpu.kernels.cache_store import key_storer, query_storer, rotator, value_storer
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.norm import rms_norm_row
from localllm.backends.cpu.kernels.parts import ld_part, st_part
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.vec import evens, float_of, ld_f, ld_i32, ld_i64, mix_high, mix_low, odds, sp_f, st_f
from localllm.backends.cpu.records import PAGES, POSITIONS, ROPES, SCRATCH, SCRATCH_BYTES, TILE

(
    _Q,
    _Q_STRIDE,
    _K,
    _K_STRIDE,
    _V,
    _V_STRIDE,
    _HEADS,
    _KV_HEADS,
    _HEAD_DIM,
    _DIM,
    _ROPE,
    _Q_NORM,
    _K_NORM,
    _EPS,
    _SCALE,
    _TABLE_STEP,
    _TABLE_OFFSET,
    _LAYER_OFFSET,
    _WIDE,
    _KEY_BYTES,
    _HEAD_BYTES,
    _ROWS,
) = ROPE_STORE.offsets
_BLOCK = 8  # rows of a piece of work: threads that store neighbouring keys would fight over cache lines


@helper
def _neox(x: int, dim: int, table: int) -> None:
    half = dim // 2
    for i in range(0, half, 16):
        left = half - i
        p, q = x + 4 * i, x + 4 * (half + i)
        c, s = ld_part(table + 4 * i, left), ld_part(table + 4 * (half + i), left)
        a, b = ld_f(p), ld_f(q)
        st_part(p, a * c - b * s, left)
        st_part(q, a * s + b * c, left)


@helper
def _norm(x: int, dim: int, table: int) -> None:
    half = dim // 2
    for i in range(0, half, 16):
        left = half - i
        p = x + 8 * i
        c, s = ld_part(table + 4 * i, left), ld_part(table + 4 * (half + i), left)
        v, w = ld_part(p, 2 * left), ld_part(p + 64, 2 * left - 16)
        a, b = evens(v, w), odds(v, w)
        re, im = a * c - b * s, a * s + b * c
        st_part(p, mix_low(re, im), 2 * left)
        st_part(p + 64, mix_high(re, im), 2 * left - 16)


@helper
def _none(x: int, dim: int, table: int) -> None:
    pass


def _fetcher(kind: str) -> Any:
    """(source, to, d, weight, eps, dim, table): a head to scratch, padded with zeros to a multiple of 64; normalised and rotated there."""
    rotate = {"neox": _neox, "norm": _norm, "none": _none}[kind]

    @helper
    def fetch(source: int, to: int, d: int, weight: int, eps: float, dim: int, table: int) -> None:
        for i in range(0, (d + 63) // 64 * 64, 16):
            st_f(to + 4 * i, ld_part(source + 4 * i, d - i))
        if weight != 0:
            rms_norm_row(to, weight, d, eps, to)
        rotate(to, dim, table)

    return fetch


def _scaler(k_type: str) -> Any:
    """(x, d, wide, scale, to): a query from scratch to its register, scaled, as keys of that type want it."""
    quantise, rotate = query_storer(k_type), rotator(k_type)
    if quantise is None:

        @helper
        def put(x: int, d: int, wide: int, scale: Any, to: int) -> None:
            for i in range(0, d, 16):
                st_part(to + 4 * i, ld_f(x + 4 * i) * scale, d - i)

    else:

        @helper
        def put(x: int, d: int, wide: int, scale: Any, to: int) -> None:
            for i in range(0, d, 16):
                st_f(x + 4 * i, ld_f(x + 4 * i) * scale)
            rotate(x, d)
            quantise(x, wide, to)

    return put


def _row_of(kind: str, k_type: str, v_type: str) -> Any:
    """(args, state, row, kv head, scratch): one row of a key head and of the query heads that see it."""
    fetch, put_query, rotate = _fetcher(kind), _scaler(k_type), rotator(k_type)
    put_key, put_value = key_storer(k_type), value_storer(v_type)

    @helper
    def row(args: int, state: int, t: int, g: int, scratch: int) -> None:
        d, dim, group = ld_i64(args + _HEAD_DIM), ld_i64(args + _DIM), ld_i64(args + _HEADS) // ld_i64(args + _KV_HEADS)
        eps, scale = float_of(int32(ld_i32(args + _EPS))), sp_f(float_of(int32(ld_i32(args + _SCALE))))
        pos, wide = ld_i64(ld_i64(state + 8 * POSITIONS) + 8 * t), ld_i64(args + _WIDE)
        table = ld_i64(state + 8 * (ROPES + ld_i64(args + _ROPE))) + pos * dim * 4
        q = ld_i64(args + _Q) + t * ld_i64(args + _Q_STRIDE) + 4 * g * group * d
        for _ in range(group):
            fetch(q, scratch, d, ld_i64(args + _Q_NORM), eps, dim, table)
            put_query(scratch, d, wide, scale, q)
            q += 4 * d
        fetch(ld_i64(args + _K) + t * ld_i64(args + _K_STRIDE) + 4 * g * d, scratch, d, ld_i64(args + _K_NORM), eps, dim, table)
        page = ld_i64(ld_i64(ld_i64(state + 8 * PAGES) + 8 * t) + pos // TILE * ld_i64(args + _TABLE_STEP) + ld_i64(args + _TABLE_OFFSET))
        block = page + ld_i64(args + _LAYER_OFFSET) + g * ld_i64(args + _HEAD_BYTES)
        rotate(scratch, d)
        put_key(scratch, wide, block, pos % TILE)
        put_value(ld_i64(args + _V) + t * ld_i64(args + _V_STRIDE) + 4 * g * d, d, wide, block + ld_i64(args + _KEY_BYTES), pos % TILE)

    return row


def rope_store(kind: str, k: str = "f16", v: str = "f16") -> Callable[..., None]:
    """Kernel (ROPE_STORE), kind "neox", "norm" or "none", for types of keys and values: a piece of work is one key head and its query
    heads, in a few rows."""
    row = _row_of(kind, k, v)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        rows, kv_heads = ld_i64(ld_i64(args + _ROWS)), ld_i64(args + _KV_HEADS)
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        i = take(counter)
        while i // kv_heads * _BLOCK < rows:
            first = i // kv_heads * _BLOCK
            for t in range(first, min(first + _BLOCK, rows)):
                row(args, state, t, i % kv_heads, scratch)
            i = take(counter)

    return run
