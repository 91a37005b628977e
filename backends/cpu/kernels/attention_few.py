"""Attention for few rows: lanes are keys for the scores and values of a head for the output.

A tile of keys is read once for all query heads that share it, which is what decoding is bound by. Tiles are computed by any thread and
merged afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float32

from localllm.backends.cpu.arguments import ATTEND
from localllm.backends.cpu.kernels.attention import HIDDEN, LOWEST, grid_fma, grid_store
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import FLOATS, TARGET
from localllm.backends.cpu.kernels.maths import vexp
from localllm.backends.cpu.kernels.parts import st_part
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import zeros
from localllm.backends.cpu.kernels.vec import bc_f, fma, hmax, hsum, keep_if, ld_f, ld_i64, sp_f, st_f, st_f32, vmax
from localllm.backends.cpu.records import KEY_TILES, PAGES, PARTIALS, POSITIONS, SCRATCH, SCRATCH_BYTES, TILE

_Q, _Q_STRIDE, _OUT, _OUT_STRIDE, _HEADS, _KV_HEADS, _HEAD_DIM, _WINDOW, _LAYER_OFFSET, _ROWS = ATTEND.offsets
_WIDE = TARGET.vnni512  # registers for 16 vectors of sums; elsewhere 4 fill them


def _scores(heads: int) -> Any:
    """(q, k, d, s): scores of TILE keys for some heads, float32 [heads][TILE] at s."""
    start, update = zeros(FLOATS, 4 * heads), grid_fma(4)
    store = grid_store(4)

    @helper
    def scores(q: int, k: int, d: int, s: int) -> None:
        block = (d + 15) // 16 * 512
        q_stride = 4 * d
        acc = start()
        for _ in range(d):
            acc = update(acc, k, block, q, q_stride)
            k += 32
            q += 4
        store(s, 4 * TILE, acc)

    return scores


@helper
def _softmax(s: int, first: int, last: int, out: int) -> None:
    """Scores to weights, in place; keys outside first..last weigh 0. Maximum and sum to out."""
    hidden = HIDDEN
    x0, x1 = keep_if(ld_f(s), first, last, hidden), keep_if(ld_f(s + 64), first - 16, last - 16, hidden)
    x2, x3 = keep_if(ld_f(s + 128), first - 32, last - 32, hidden), keep_if(ld_f(s + 192), first - 48, last - 48, hidden)
    m = hmax(vmax(vmax(vmax(x0, x1), vmax(x2, x3)), sp_f(LOWEST)))
    top = sp_f(m)
    x0, x1, x2, x3 = vexp(x0 - top), vexp(x1 - top), vexp(x2 - top), vexp(x3 - top)
    st_f(s, x0)
    st_f(s + 64, x1)
    st_f(s + 128, x2)
    st_f(s + 192, x3)
    st_f32(out, m)
    st_f32(out + 4, hsum((x0 + x1) + (x2 + x3)))


def _values(heads: int, vectors: int) -> Any:
    """(v, v_stride, p, keys, out, out_stride): 16*vectors values of the output of some heads, over ``keys`` keys."""
    start, update, store = zeros(FLOATS, heads * vectors), grid_fma(vectors), grid_store(vectors)

    @helper
    def values(v: int, v_stride: int, p: int, keys: int, out: int, out_stride: int) -> None:
        acc = start()
        for _ in range(keys):
            acc = update(acc, v, 32, p, 4 * TILE)
            v += v_stride
            p += 4
        store(out, out_stride, acc)

    return values


def _tile(heads: int) -> Any:
    """(q, block, d, first, last, scratch, part, part_stride): the partial results of some heads for keys first..last of a tile."""
    scores, values, value = _scores(heads), _values(heads, 4), _values(heads, 1)

    @helper
    def tile(q: int, block: int, d: int, first: int, last: int, scratch: int, part: int, part_stride: int) -> None:
        wide = (d + 15) // 16 * 16
        scores(q, block, d, scratch)
        for h in range(heads):
            _softmax(scratch + 4 * TILE * h, first, last, part + h * part_stride)
        v = block + (TILE + first) * wide * 2
        p = scratch + 4 * first
        keys = last - first + 1
        i = 0
        while wide - i >= 64:
            values(v + 2 * i, 2 * wide, p, keys, part + 64 + 4 * i, part_stride)
            i += 64
        while i < wide:
            value(v + 2 * i, 2 * wide, p, keys, part + 64 + 4 * i, part_stride)
            i += 16

    return tile


_one, _two, _four = _tile(1), _tile(2), _tile(4)


@helper
def _first_key(args: int, pos: int) -> int:
    """The first position that the query at ``pos`` sees."""
    window = ld_i64(args + _WINDOW)
    return max(0, pos - window + 1) if window > 0 else 0


@helper
def _group(args: int, state: int, row: int, g: int, key: int, pos: int, scratch: int) -> None:
    """The tile that holds position ``key``, for the query heads of key head g."""
    heads, kv_heads, d = ld_i64(args + _HEADS), ld_i64(args + _KV_HEADS), ld_i64(args + _HEAD_DIM)
    wide, group = (d + 15) // 16 * 16, heads // kv_heads
    t = key // TILE
    first_key = _first_key(args, pos)
    first, last = max(first_key - t * TILE, 0), min(pos - t * TILE, TILE - 1)
    page = ld_i64(ld_i64(ld_i64(state + 8 * PAGES) + 8 * row) + 8 * t)
    block = page + ld_i64(args + _LAYER_OFFSET) + g * (4 * TILE * wide)
    size = 64 + 4 * wide
    stride = size * ld_i64(state + 8 * KEY_TILES)
    part = ld_i64(state + 8 * PARTIALS) + (row * heads + g * group) * stride + (t - first_key // TILE) * size
    q = ld_i64(args + _Q) + row * ld_i64(args + _Q_STRIDE) + 4 * g * group * d
    h = 0
    while h < group:
        if _WIDE and group - h >= 4:
            _four(q + 4 * h * d, block, d, first, last, scratch, part + h * stride, stride)
            h += 4
        elif _WIDE and group - h >= 2:
            _two(q + 4 * h * d, block, d, first, last, scratch, part + h * stride, stride)
            h += 2
        else:
            _one(q + 4 * h * d, block, d, first, last, scratch, part + h * stride, stride)
            h += 1


def attend_few() -> Callable[..., None]:
    """Kernel (ATTEND): partial results; a piece of work is a tile of keys of one row and key head."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        rows, kv_heads = ld_i64(ld_i64(args + _ROWS)), ld_i64(args + _KV_HEADS)
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        i = take(counter)
        before = 0
        for row in range(rows):
            pos = ld_i64(ld_i64(state + 8 * POSITIONS) + 8 * row)
            first = _first_key(args, pos) // TILE
            tiles = pos // TILE - first + 1
            while i < before + tiles * kv_heads:
                n = i - before
                _group(args, state, row, n // tiles, (first + n % tiles) * TILE, pos, scratch)
                i = take(counter)
            before += tiles * kv_heads

    return run


@helper
def _merge(part: int, tiles: int, d: int, scratch: int, out: int) -> None:
    wide = (d + 15) // 16 * 16
    m, l = sp_f(LOWEST), sp_f(float32(0.0))
    for i in range(0, 4 * wide, 64):
        st_f(scratch + i, sp_f(float32(0.0)))
    for _ in range(tiles):
        new = bc_f(part)
        top = vmax(m, new)
        c, ct = vexp(m - top), vexp(new - top)
        m = top
        l = fma(bc_f(part + 4), ct, l * c)
        for i in range(0, 4 * wide, 64):
            st_f(scratch + i, fma(ld_f(part + 64 + i), ct, ld_f(scratch + i) * c))
        part += 64 + 4 * wide
    for i in range(0, d, 16):
        st_part(out + 4 * i, ld_f(scratch + 4 * i) / l, d - i)


def merge_few() -> Callable[..., None]:
    """Kernel (ATTEND): the tiles of attend_few to the output; a piece of work is one head of a row."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        heads, d = ld_i64(args + _HEADS), ld_i64(args + _HEAD_DIM)
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        stride = (64 + (d + 15) // 16 * 64) * ld_i64(state + 8 * KEY_TILES)
        pieces = ld_i64(ld_i64(args + _ROWS)) * heads
        i = take(counter)
        while i < pieces:
            row = i // heads
            pos = ld_i64(ld_i64(state + 8 * POSITIONS) + 8 * row)
            tiles = pos // TILE - _first_key(args, pos) // TILE + 1
            out = ld_i64(args + _OUT) + row * ld_i64(args + _OUT_STRIDE) + 4 * (i % heads) * d
            _merge(ld_i64(state + 8 * PARTIALS) + i * stride, tiles, d, scratch, out)
            i = take(counter)

    return run
