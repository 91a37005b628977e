"""Attention for many rows: lanes are 16 queries of one line; a tile of keys is widened once for all query heads that share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float32

from localllm.backends.cpu.arguments import ATTEND
from localllm.backends.cpu.kernels.attention import HIDDEN, LOWEST, tile_fma_between, tile_max, tile_merge, tile_sum, tile_turned
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import FLOATS, TARGET
from localllm.backends.cpu.kernels.maths import vexp
from localllm.backends.cpu.kernels.parts import ld_part, st_part
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import loader, tile_fma, tile_store, zeros
from localllm.backends.cpu.kernels.vec import fma, keep_if, ld_f, ld_h, ld_i64, sp_f, st_f, vmax
from localllm.backends.cpu.records import NQ, QUERY_TILES, SCRATCH, SCRATCH_BYTES, TILE

_Q, _Q_STRIDE, _OUT, _OUT_STRIDE, _HEADS, _KV_HEADS, _HEAD_DIM, _WINDOW, _LAYER_OFFSET, _ROWS = ATTEND.offsets
_ROW = 64  # bytes of a vector of queries
_COLUMNS = 16 if TARGET.vnni512 else 4 if TARGET.avx2 or TARGET.neon else 2  # vectors of sums that the registers hold
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


@helper
def _widen(block: int, wide: int, keys: int, k: int, v: int) -> None:
    """The first ``keys`` keys and values of a tile to float32; keys in whole blocks of 16."""
    for i in range((keys + 15) // 16 * wide):
        st_f(k + 64 * i, ld_h(block + 32 * i))
    block += 2 * TILE * wide
    for i in range(keys * wide // 16):
        st_f(v + 64 * i, ld_h(block + 32 * i))


@helper
def _scores(q: int, k: int, d: int, keys: int, s: int) -> None:
    """[TILE][16 queries] scores, in whole blocks of 16 keys."""
    block = (d + 15) // 16 * 1024
    for b in range((keys + 15) // 16):
        for c in range(0, 16, _COLUMNS):
            acc = _start()
            at = k + b * block + 4 * c
            for i in range(d):
                acc = tile_fma(acc, ld_f(q + _ROW * i), at, 4)
                at += 64
            tile_store(s + _ROW * (16 * b + c), _ROW, acc)


@helper
def _hide(s: int, keys: int, shift: int, reach: int) -> None:
    """HIDDEN where a query does not see a key: query j sees key k if 0 <= j - k - shift <= reach."""
    for k in range(TILE):
        x = sp_f(HIDDEN)
        if k < keys:
            x = keep_if(ld_f(s + _ROW * k), k + shift, k + shift + reach, HIDDEN)
        st_f(s + _ROW * k, x)


@helper
def _softmax(s: int, sums: int) -> Any:
    """Scores to weights, in place; (maximum, sum) of every query."""
    m = sp_f(LOWEST)
    for k in range(0, TILE, 16):
        m = vmax(tile_max(_load16(s + _ROW * k, _ROW)), m)
    for i in range(0, 16 * _ROW, _ROW):
        p = s + i
        x0, x1 = vexp(ld_f(p) - m), vexp(ld_f(p + 16 * _ROW) - m)
        x2, x3 = vexp(ld_f(p + 32 * _ROW) - m), vexp(ld_f(p + 48 * _ROW) - m)
        st_f(p, x0)
        st_f(p + 16 * _ROW, x1)
        st_f(p + 32 * _ROW, x2)
        st_f(p + 48 * _ROW, x3)
        st_f(sums + i, (x0 + x1) + (x2 + x3))
    return m, tile_sum(_load16(sums, _ROW))


@helper
def _values(p: int, v: int, wide: int, new: Any, old: Any, o: int) -> None:
    """o = (weights @ values) * new + o * old, for a tile that all queries see."""
    for i in range(0, wide, _COLUMNS):
        acc = _start()
        at = v + 4 * i
        for k in range(TILE):
            acc = tile_fma(acc, ld_f(p + _ROW * k), at, 4)
            at += 4 * wide
        tile_merge(acc, new, old, o + _ROW * i, 0, 15)


@helper
def _values_seen(p: int, v: int, wide: int, keys: int, shift: int, reach: int, new: Any, old: Any, o: int) -> None:
    """The same for a tile that some queries don't see, or see in part: what is hidden does not even add zero."""
    for i in range(0, wide, _COLUMNS):
        acc = _start()
        at = v + 4 * i
        for k in range(keys):
            acc = tile_fma_between(acc, ld_f(p + _ROW * k), at, 4, k + shift, k + shift + reach)
            at += 4 * wide
        tile_merge(acc, new, old, o + _ROW * i, shift, shift + TILE - 1 + reach)


@helper
def _step(q: int, d: int, k: int, v: int, keys: int, shift: int, reach: int, whole: bool, s: int, ml: int, o: int) -> None:
    """One head meets one tile of keys. ml: maximum and sum so far; o: [d][16 queries] output so far."""
    wide = (d + 15) // 16 * 16
    _scores(q, k, d, keys, s)
    if not whole:
        _hide(s, keys, shift, reach)
    new_m, new_l = _softmax(s, s + TILE * _ROW)
    m = ld_f(ml)
    top = vmax(m, new_m)
    old, new = vexp(m - top), vexp(new_m - top)
    st_f(ml, top)
    st_f(ml + _ROW, fma(new_l, new, ld_f(ml + _ROW) * old))
    if whole:
        _values(s, v, wide, new, old, o)
    else:
        _values_seen(s, v, wide, keys, shift, reach, new, old, o)


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
def _begin(args: int, tile: int, g: int, d: int, wide: int, group: int, scratch: int, qs: int) -> None:
    """Queries of a group to scratch, each head followed by maximum, sum and output of nothing seen yet."""
    q = ld_i64(args + _Q) + ld_i64(tile) * ld_i64(args + _Q_STRIDE) + 4 * g * group * d
    for h in range(group):
        _fetch(q + 4 * h * d, ld_i64(args + _Q_STRIDE), ld_i64(tile + 8), d, scratch, qs)
        qs += _ROW * wide
        st_f(qs, sp_f(LOWEST))
        for i in range(_ROW, _ROW * (wide + 2), _ROW):
            st_f(qs + i, sp_f(float32(0.0)))
        qs += _ROW * (wide + 2)


@helper
def _piece(args: int, tile: int, g: int, scratch: int) -> None:
    d, group, window = ld_i64(args + _HEAD_DIM), ld_i64(args + _HEADS) // ld_i64(args + _KV_HEADS), ld_i64(args + _WINDOW)
    wide = (d + 15) // 16 * 16
    rows, pos, pages = ld_i64(tile + 8), ld_i64(tile + 16), ld_i64(tile + 24)
    s, k = scratch, scratch + (TILE + 16) * _ROW
    v = k + 4 * TILE * wide
    qs = v + 4 * TILE * wide
    step = _ROW * (2 * wide + 2)
    reach = window - 1 if window > 0 else 1 << 40
    _begin(args, tile, g, d, wide, group, scratch, qs)
    for t in range(max(0, pos - reach) // TILE, (pos + rows - 1) // TILE + 1):
        start = t * TILE
        keys = min(TILE, pos + rows - start)
        _widen(ld_i64(pages + 8 * t) + ld_i64(args + _LAYER_OFFSET) + g * (4 * TILE * wide), wide, keys, k, v)
        whole = start + TILE - 1 <= pos and start >= pos + rows - 1 - reach
        for h in range(group):
            ml = qs + h * step + _ROW * wide
            _step(qs + h * step, d, k, v, keys, start - pos, reach, whole, s, ml, ml + 2 * _ROW)
    out = ld_i64(args + _OUT) + ld_i64(tile) * ld_i64(args + _OUT_STRIDE) + 4 * g * group * d
    for h in range(group):
        ml = qs + h * step + _ROW * wide
        _finish(ml + 2 * _ROW, ml, d, scratch, out + 4 * h * d, ld_i64(args + _OUT_STRIDE), rows)


def attend_many() -> Callable[..., None]:
    """Kernel (ATTEND): a piece of work is a tile of queries and one key head; the last tiles, which see most, come first."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        count, kv_heads = ld_i64(state + 8 * NQ), ld_i64(args + _KV_HEADS)
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        i = take(counter)
        while i < count * kv_heads:
            _piece(args, ld_i64(state + 8 * QUERY_TILES) + 32 * (count - 1 - i // kv_heads), i % kv_heads, scratch)
            i = take(counter)

    return run
