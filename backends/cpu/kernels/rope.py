"""Before attention: norm of each head, rotary embedding, scale of the queries, and storing of keys and values in the cache's pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import int32

from localllm.backends.cpu.arguments import ROPE_STORE
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.norm import rms_norm_row
from localllm.backends.cpu.kernels.parts import ld_part, scatter_h, st_part
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.vec import evens, float_of, ld_f, ld_i32, ld_i64, mix_high, mix_low, odds, sp_f, st_f, st_h
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


@helper
def _store(k: int, v: int, d: int, block: int, pos: int) -> None:
    """k, from scratch, and v, from its register, to position ``pos`` of a page; ``block``: address of the head's part of it."""
    wide = (d + 15) // 16 * 16
    key, value = block + pos // 16 * (32 * wide) + pos % 16 * 2, block + 2 * TILE * wide + pos * (2 * wide)
    for i in range(0, wide, 16):
        scatter_h(key + 32 * i, 32, ld_f(k + 4 * i))
        st_h(value + 2 * i, ld_part(v + 4 * i, d - i))


def _row_of(kind: str) -> Any:
    """(args, state, row, kv head, scratch): one row of a key head and of the query heads that see it."""
    fetch = _fetcher(kind)

    @helper
    def row(args: int, state: int, t: int, g: int, scratch: int) -> None:
        d, dim, group = ld_i64(args + _HEAD_DIM), ld_i64(args + _DIM), ld_i64(args + _HEADS) // ld_i64(args + _KV_HEADS)
        eps, scale = float_of(int32(ld_i32(args + _EPS))), sp_f(float_of(int32(ld_i32(args + _SCALE))))
        pos = ld_i64(ld_i64(state + 8 * POSITIONS) + 8 * t)
        table = ld_i64(state + 8 * (ROPES + ld_i64(args + _ROPE))) + pos * dim * 4
        q = ld_i64(args + _Q) + t * ld_i64(args + _Q_STRIDE) + 4 * g * group * d
        for _ in range(group):
            fetch(q, scratch, d, ld_i64(args + _Q_NORM), eps, dim, table)
            for i in range(0, d, 16):
                st_part(q + 4 * i, ld_f(scratch + 4 * i) * scale, d - i)
            q += 4 * d
        fetch(ld_i64(args + _K) + t * ld_i64(args + _K_STRIDE) + 4 * g * d, scratch, d, ld_i64(args + _K_NORM), eps, dim, table)
        page = ld_i64(ld_i64(ld_i64(state + 8 * PAGES) + 8 * t) + pos // TILE * ld_i64(args + _TABLE_STEP) + ld_i64(args + _TABLE_OFFSET))
        block = page + ld_i64(args + _LAYER_OFFSET) + g * (4 * TILE * ((d + 15) // 16 * 16))
        _store(scratch, ld_i64(args + _V) + t * ld_i64(args + _V_STRIDE) + 4 * g * d, d, block, pos % TILE)

    return row


def rope_store(kind: str) -> Callable[..., None]:
    """Kernel (ROPE_STORE), kind "neox", "norm" or "none": a piece of work is one key head and its query heads, in a few rows."""
    row = _row_of(kind)

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
