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
_HEADS_AT_ONCE, _SUMS = (8, 24) if TARGET.vnni512 else (2, 4)  # how many heads, and vectors of sums, the registers hold


def _vectors(heads: int) -> int:
    return 4 if 4 * heads <= _SUMS else 2


def _scores(heads: int) -> Any:
    """(q, k, d, s): scores of a tile's keys for some heads, float32 [heads][TILE] at s."""
    vectors = _vectors(heads)
    start, update, store = zeros(FLOATS, vectors * heads), grid_fma(vectors), grid_store(vectors)

    @helper
    def scores(q: int, k: int, d: int, s: int) -> None:
        block = (d + 15) // 16 * 512
        for i in range(0, 4, vectors):
            acc = start()
            p, x = k + i * block, q
            for _ in range(d):
                acc = update(acc, p, block, x, 4 * d)
                p += 32
                x += 4
            store(s + 64 * i, 4 * TILE, acc)

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
    """(p, v, keys, step, o, o_stride): 16*vectors values of the outputs of some heads, over keys that are ``step`` bytes apart."""
    start, update, store = zeros(FLOATS, heads * vectors), grid_fma(vectors), grid_store(vectors)

    @helper
    def values(p: int, v: int, keys: int, step: int, o: int, o_stride: int) -> None:
        acc = start()
        for _ in range(keys):
            acc = update(acc, v, 32, p, 4 * TILE)
            v += step
            p += 4
        store(o, o_stride, acc)

    return values


def _heads(heads: int) -> Any:
    """(q, block, d, first, last, scratch, part, stride): partial results of some heads for the keys first..last of a tile."""
    vectors = _vectors(heads)
    scores, values, value = _scores(heads), _values(heads, vectors), _values(heads, 1)

    @helper
    def run(q: int, block: int, d: int, first: int, last: int, scratch: int, part: int, stride: int) -> None:
        width = (d + 15) // 16 * 16
        scores(q, block, d, scratch)
        for h in range(heads):
            _softmax(scratch + 4 * TILE * h, first, last, part + h * stride)
        p, v, keys = scratch + 4 * first, block + (TILE + first) * width * 2, last - first + 1
        i = 0
        while width - i >= 16 * vectors:
            values(p, v + 2 * i, keys, 2 * width, part + 64 + 4 * i, stride)
            i += 16 * vectors
        while i < width:
            value(p, v + 2 * i, keys, 2 * width, part + 64 + 4 * i, stride)
            i += 16

    return run


@helper
def _first_key(args: int, pos: int) -> int:
    """The first position that the query at ``pos`` sees."""
    window = ld_i64(args + _WINDOW)
    return max(0, pos - window + 1) if window > 0 else 0


def _tile(group: int) -> Any:
    """(args, state, row, kv head, tile, position, scratch): the tile for all query heads of a key head, a few of them at once."""
    at_once = max(n for n in range(1, _HEADS_AT_ONCE + 1) if group % n == 0)
    several, single = _heads(at_once), _heads(1)

    @helper
    def tile(args: int, state: int, row: int, g: int, t: int, pos: int, scratch: int) -> None:
        heads, kv_heads, d = ld_i64(args + _HEADS), ld_i64(args + _KV_HEADS), ld_i64(args + _HEAD_DIM)
        width, left = (d + 15) // 16 * 16, heads // kv_heads
        first_key = _first_key(args, pos)
        first, last = max(first_key - t * TILE, 0), min(pos - t * TILE, TILE - 1)
        page = ld_i64(ld_i64(ld_i64(state + 8 * PAGES) + 8 * row) + 8 * t)
        block = page + ld_i64(args + _LAYER_OFFSET) + g * (4 * TILE * width)
        size = 64 + 4 * width
        stride = size * ld_i64(state + 8 * KEY_TILES)
        part = ld_i64(state + 8 * PARTIALS) + (row * heads + g * left) * stride + (t - first_key // TILE) * size
        q = ld_i64(args + _Q) + row * ld_i64(args + _Q_STRIDE) + 4 * g * left * d
        while left >= at_once:
            several(q, block, d, first, last, scratch, part, stride)
            q += 4 * at_once * d
            part += at_once * stride
            left -= at_once
        while left > 0:
            single(q, block, d, first, last, scratch, part, stride)
            q += 4 * d
            part += stride
            left -= 1

    return tile


def attend_few(group: int = 4) -> Callable[..., None]:
    """Kernel (ATTEND): partial results; a piece of work is a tile of keys of one row and key head.

    ``group``: how many query heads share a key head. Every number is right for every model; the model's own is fastest.
    """
    tile = _tile(group)

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
                tile(args, state, row, n // tiles, first + n % tiles, pos, scratch)
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
