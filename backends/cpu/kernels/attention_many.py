"""Attention for many rows: lanes are 16 queries of one line; a tile of keys is widened once for all query heads that share it, and what is
loaded of it is used for two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float32

from localllm.backends.cpu.arguments import ATTEND, MANY_HEADS
from localllm.backends.cpu.kernels.attention import (
    HIDDEN,
    LOWEST,
    rows_fma,
    rows_fma_seen,
    rows_merge,
    tile_max,
    tile_sum,
    tile_turned,
)
from localllm.backends.cpu.kernels.attention_bytes import many_scores
from localllm.backends.cpu.kernels.attention_values import key_widener, value_widener
from localllm.backends.cpu.kernels.grid import grid_store
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import AHEAD, FLOATS, TARGET
from localllm.backends.cpu.kernels.maths import decay
from localllm.backends.cpu.kernels.parts import ld_part, st_part
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import loader, prefetcher, tile_store, zeros
from localllm.backends.cpu.kernels.vec import fma, keep_if, ld_f, ld_i64, sp_f, st_f, st_i64, vmax
from localllm.backends.cpu.kv_types import QUANTISED
from localllm.backends.cpu.records import NQ, QUERY_TILES, SCRATCH, SCRATCH_BYTES, TILE

(
    _Q,
    _Q_STRIDE,
    _OUT,
    _OUT_STRIDE,
    _HEADS,
    _KV_HEADS,
    _HEAD_DIM,
    _WINDOW,
    _TABLE_STEP,
    _TABLE_OFFSET,
    _LAYER_OFFSET,
    _WIDE,
    _KEY_BYTES,
    _HEAD_BYTES,
    _ROWS,
) = ATTEND.offsets
_ROW = 64  # bytes of a vector of queries
_COLUMNS = 16 if TARGET.vnni512 else 4 if TARGET.avx2 or TARGET.neon else 2  # vectors of sums that the registers hold
_HEADS_AT_ONCE = MANY_HEADS if TARGET.vnni512 else 1
_S = (TILE + 16) * _ROW  # bytes of a head's scores and their sums
_start = zeros(FLOATS, _COLUMNS)
_load16 = loader(FLOATS, 16)


@helper
def _turn(source: int, to: int) -> None:
    """16 rows of 16 floats, transposed."""
    tile_store(to, 64, tile_turned(_load16(source, 64)))


@helper
def _fetch(q: int, stride: int, rows: int, d: int, scratch: int, to: int) -> None:
    """One head of the query rows to [d][16 queries]; lanes without a row repeat the last one."""
    for i in range(0, d, 16):
        for j in range(16):
            st_f(scratch + 64 * j, ld_part(q + min(j, rows - 1) * stride + 4 * i, d - i))
        _turn(scratch, to + _ROW * i)


def _scores(heads: int, kind: str) -> Any:
    """(q, q_step, k, d, wide, first, keys, s, ahead): [TILE][16 queries] scores of some heads, in whole blocks of 16 keys around
    first..keys-1. Meanwhile the memory from ``ahead`` on is asked for."""
    if kind in QUANTISED:
        return many_scores(heads, kind, _S)
    columns = _COLUMNS // heads
    update, store, fetch = rows_fma(heads), grid_store(columns), prefetcher(1 if AHEAD else 0)

    @helper
    def scores(q: int, q_step: int, k: int, d: int, wide: int, first: int, keys: int, s: int, ahead: int) -> None:
        for b in range(first // 16, (keys + 15) // 16):
            for c in range(0, 16, columns):
                acc = _start()
                x, at = q, k + b * (64 * wide) + 4 * c
                for _ in range(d):
                    fetch(ahead)
                    acc = update(acc, x, q_step, at)
                    x += _ROW
                    at += 64
                    ahead += 4 * columns
                store(acc, s + _ROW * (16 * b + c), _S)

    return scores


@helper
def _lanes(first: int, last: int) -> Any:
    """The bits first..last of 16."""
    first, last = max(first, 0), min(last, 15)
    return ((2 << (last - first)) - 1) << first if first <= last else 0


@helper
def _hide(s: int, first: int, some: int, all_: int, keys: int, shift: int, reach: int) -> None:
    """HIDDEN where a query does not see a key. Some see first..some-1 and all_..keys-1, all see what is between; the others are seen by
    none."""
    for k in range(TILE):
        if k < first or k >= keys:
            st_f(s + _ROW * k, sp_f(HIDDEN))
        elif k < some or k >= all_:
            st_f(s + _ROW * k, keep_if(ld_f(s + _ROW * k), k + shift, k + shift + reach, HIDDEN))


@helper
def _softmax(s: int, sums: int) -> Any:
    """Scores to weights, in place; (maximum, sum) of every query."""
    m = sp_f(LOWEST)
    for k in range(0, TILE, 16):
        m = vmax(tile_max(_load16(s + _ROW * k, _ROW)), m)
    for i in range(0, 16 * _ROW, _ROW):
        p = s + i
        x0, x1 = decay(ld_f(p) - m), decay(ld_f(p + 16 * _ROW) - m)
        x2, x3 = decay(ld_f(p + 32 * _ROW) - m), decay(ld_f(p + 48 * _ROW) - m)
        st_f(p, x0)
        st_f(p + 16 * _ROW, x1)
        st_f(p + 32 * _ROW, x2)
        st_f(p + 48 * _ROW, x3)
        st_f(sums + i, (x0 + x1) + (x2 + x3))
    return m, tile_sum(_load16(sums, _ROW))


def _values(heads: int) -> Any:
    """(p, v, wide, first, some, all_, keys, shift, reach, o, o_step): o = (weights @ values) * new + o * old for some heads. What a query
    does not see does not even add zero."""
    columns = _COLUMNS // heads
    update, update_seen, merge = rows_fma(heads), rows_fma_seen(heads), rows_merge(heads)

    @helper
    def values(p: int, v: int, wide: int, first: int, some: int, all_: int, keys: int, shift: int, reach: int, o: int, o_step: int) -> None:
        queries, seen = _lanes(shift, shift + TILE - 1 + reach), p + TILE * _ROW + 2 * _ROW
        for k in range(keys):
            if k < some or k >= all_:
                st_i64(seen + 8 * k, _lanes(k + shift, k + shift + reach))
        for i in range(0, wide, columns):
            acc = _start()
            at = v + i // 16 * (64 * TILE) + i % 16 * 4
            for k in range(first, some):
                acc = update_seen(acc, p + _ROW * k, _S, at + 64 * k, ld_i64(seen + 8 * k))
            for k in range(some, all_):
                acc = update(acc, p + _ROW * k, _S, at + 64 * k)
            for k in range(all_, keys):
                acc = update_seen(acc, p + _ROW * k, _S, at + 64 * k, ld_i64(seen + 8 * k))
            merge(acc, p + TILE * _ROW, _S, o + _ROW * i, o_step, queries)

    return values


@helper
def _weigh(s: int, ml: int) -> None:
    """Scores of a head to weights, its maximum and sum at ml brought up to date; what the tile's outputs and those before are multiplied
    with to where the softmax has its sums."""
    new_m, new_l = _softmax(s, s + TILE * _ROW)
    m = ld_f(ml)
    top = vmax(m, new_m)
    old, new = decay(m - top), decay(new_m - top)
    st_f(ml, top)
    st_f(ml + _ROW, fma(new_l, new, ld_f(ml + _ROW) * old))
    st_f(s + TILE * _ROW, new)
    st_f(s + TILE * _ROW + _ROW, old)


def _step(heads: int, kind: str) -> Any:
    """(q, d, wide, k, v, rows, keys, shift, reach, s, ahead): some heads meet one tile of keys. q: queries of the first, then its state."""
    scores, values = _scores(heads, kind), _values(heads)

    @helper
    def step(q: int, d: int, wide: int, k: int, v: int, rows: int, keys: int, shift: int, reach: int, s: int, ahead: int) -> None:
        step, ml = _head_bytes(wide), q + _ROW * wide
        first = max(0, -shift - reach)
        some = min(max(first, rows - 1 - shift - reach), keys)
        all_ = min(max(some, 1 - shift), keys)
        scores(q, step, k, d, wide, first, keys, s, ahead)
        for h in range(heads):
            if some > 0 or all_ < TILE:
                _hide(s + h * _S, first, some, all_, keys, shift, reach)
            _weigh(s + h * _S, ml + h * step)
        values(s, v, wide, first, some, all_, keys, shift, reach, ml + 2 * _ROW, step)

    return step


@helper
def _head_bytes(wide: int) -> Any:
    """From one head's queries and state to the next's."""
    return _ROW * (2 * wide + 2)


@helper
def _finish(o: int, ml: int, d: int, scratch: int, out: int, stride: int, rows: int) -> None:
    """Output over sum, to the rows of the register."""
    l = ld_f(ml + _ROW)
    for i in range(0, d, 16):
        for k in range(16):
            st_f(scratch + 64 * k, ld_f(o + _ROW * (i + k)) / l)
        _turn(scratch, scratch)
        for j in range(rows):
            st_part(out + j * stride + 4 * i, ld_f(scratch + 64 * j), d - i)


@helper
def _begin(args: int, tile: int, g: int, d: int, wide: int, words: int, group: int, scratch: int, qs: int) -> None:
    """Queries of a group, ``words`` of each, to scratch, each head followed by maximum, sum and output of nothing seen yet."""
    q = ld_i64(args + _Q) + ld_i64(tile) * ld_i64(args + _Q_STRIDE) + 4 * g * group * d
    for h in range(group):
        _fetch(q + 4 * h * d, ld_i64(args + _Q_STRIDE), ld_i64(tile + 8), words, scratch, qs)
        qs += _ROW * wide
        st_f(qs, sp_f(LOWEST))
        for i in range(_ROW, _ROW * (wide + 2), _ROW):
            st_f(qs + i, sp_f(float32(0.0)))
        qs += _ROW * (wide + 2)


def _piece(k_type: str, v_type: str) -> Any:
    """(args, tile, kv head, scratch): a tile of queries meets all keys that it sees."""
    step1, step2 = _step(1, k_type), _step(_HEADS_AT_ONCE, k_type)
    widen_keys, widen_values, quantised = key_widener(k_type), value_widener(v_type), k_type in QUANTISED

    @helper
    def piece(args: int, tile: int, g: int, scratch: int) -> None:
        d, group, window = ld_i64(args + _HEAD_DIM), ld_i64(args + _HEADS) // ld_i64(args + _KV_HEADS), ld_i64(args + _WINDOW)
        wide = ld_i64(args + _WIDE)
        rows, pos, pages = ld_i64(tile + 8), ld_i64(tile + 16), ld_i64(tile + 24) + ld_i64(args + _TABLE_OFFSET)
        page_step = ld_i64(args + _TABLE_STEP)
        offset = ld_i64(args + _LAYER_OFFSET) + g * ld_i64(args + _HEAD_BYTES)
        s, k = scratch, scratch + _HEADS_AT_ONCE * _S
        v = k + 4 * TILE * wide
        qs = v + 4 * TILE * wide
        step = _head_bytes(wide)
        reach = window - 1 if window > 0 else 1 << 40
        _begin(args, tile, g, d, wide, wide // 4 + wide // 16 if quantised else d, group, scratch, qs)
        last = (pos + rows - 1) // TILE
        for t in range(max(0, pos - reach) // TILE, last + 1):
            start = t * TILE
            keys = min(TILE, pos + rows - start)
            block = ld_i64(pages + page_step * t) + offset
            widen_keys(block, wide, keys, k)
            widen_values(block + ld_i64(args + _KEY_BYTES), wide, keys, v)
            there = block if quantised else k
            h, ahead = 0, ld_i64(pages + page_step * min(t + 1, last)) + offset
            while h + _HEADS_AT_ONCE <= group:
                step2(qs + h * step, d, wide, there, v, rows, keys, start - pos, reach, s, ahead)
                h += _HEADS_AT_ONCE
            while h < group:
                step1(qs + h * step, d, wide, there, v, rows, keys, start - pos, reach, s, ahead)
                h += 1
        out = ld_i64(args + _OUT) + ld_i64(tile) * ld_i64(args + _OUT_STRIDE) + 4 * g * group * d
        for h in range(group):
            ml = qs + h * step + _ROW * wide
            _finish(ml + 2 * _ROW, ml, d, scratch, out + 4 * h * d, ld_i64(args + _OUT_STRIDE), rows)

    return piece


def attend_many(k: str = "f16", v: str = "f16") -> Callable[..., None]:
    """Kernel (ATTEND), for types of keys and values: a piece of work is a tile of queries and one key head; the last tiles, which see most,
    come first."""
    piece = _piece(k, v)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        count, kv_heads = ld_i64(state + 8 * NQ), ld_i64(args + _KV_HEADS)
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        i = take(counter)
        while i < count * kv_heads:
            piece(args, ld_i64(state + 8 * QUERY_TILES) + 32 * (count - 1 - i // kv_heads), i % kv_heads, scratch)
            i = take(counter)

    return run
