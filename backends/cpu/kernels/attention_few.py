"""Attention for few rows: lanes are keys for the scores and values of a head for the output.

A tile of keys is read once for all query heads that share it, which is what decoding is bound by. Tiles are computed by any thread and
merged afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float32

from localllm.backends.cpu.arguments import ATTEND
from localllm.backends.cpu.kernels.attention import HIDDEN, LOWEST, tile_rescaled
from localllm.backends.cpu.kernels.attention_bytes import few_scores
from localllm.backends.cpu.kernels.attention_values import values_fma
from localllm.backends.cpu.kernels.grid import grid_fma, grid_store
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import FLOATS, TARGET, ZEN
from localllm.backends.cpu.kernels.maths import decay
from localllm.backends.cpu.kernels.parts import st_part
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import loader, prefetcher, tile_store, zeros
from localllm.backends.cpu.kernels.vec import bc_f, fma, hmax, hsum, keep_if, ld_f, ld_f32, ld_i64, sp_f, st_f, st_f32, vmax
from localllm.backends.cpu.kv_types import BITS, QUANTISED
from localllm.backends.cpu.records import KEY_TILES, PAGES, PARTIALS, POSITIONS, SCRATCH, SCRATCH_BYTES, TILE

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
_HEADS_AT_ONCE, _SUMS = (8, 20 if ZEN else 24) if TARGET.vnni512 else (2, 4)
"""How many heads, and vectors of sums, the registers hold: beside more than 20, LLVM spills as it orders instructions for Zen 4."""
_PIECES = 4  # pieces of work that there must be before rows share one


def _vectors(heads: int) -> int:
    return 4 if 4 * heads <= _SUMS else 2


def _scores(heads: int, kind: str) -> Any:
    """(q, k, d, wide, s, ahead): scores of a tile's keys for some heads, float32 [heads][TILE] at s. As much memory as the keys take is
    asked for from ``ahead`` on."""
    vectors = _vectors(heads)
    if kind in QUANTISED:
        return few_scores(heads, vectors // 2, kind)
    size = 2 * BITS[kind]  # bytes of 16 keys' values
    start, update, store, fetch = (
        zeros(FLOATS, vectors * heads),
        grid_fma(kind.upper(), vectors),
        grid_store(vectors),
        prefetcher(vectors * size // 64 if TARGET.avx2 else 0),
    )

    @helper
    def scores(q: int, k: int, d: int, wide: int, s: int, ahead: int) -> None:
        block = wide * size
        for i in range(0, 4, vectors):
            acc = start()
            p, x = k + i * block, q
            for _ in range(d):
                fetch(ahead)
                acc = update(acc, p, block, x, 4 * d)
                p += size
                x += 4
                ahead += size * vectors
            store(acc, s + 64 * i, 4 * TILE)

    return scores


@helper
def _hide(s: int, first: int, last: int) -> None:
    """Scores of keys outside first..last become HIDDEN."""
    for k in range(0, TILE, 16):
        st_f(s + 4 * k, keep_if(ld_f(s + 4 * k), first - k, last - k, HIDDEN))


@helper
def _softmax(s: int, out: int) -> None:
    """Scores to weights, in place. Maximum and sum to out."""
    x0, x1, x2, x3 = ld_f(s), ld_f(s + 64), ld_f(s + 128), ld_f(s + 192)
    m = hmax(vmax(vmax(vmax(x0, x1), vmax(x2, x3)), sp_f(LOWEST)))
    top = sp_f(m)
    x0, x1, x2, x3 = decay(x0 - top), decay(x1 - top), decay(x2 - top), decay(x3 - top)
    st_f(s, x0)
    st_f(s + 64, x1)
    st_f(s + 128, x2)
    st_f(s + 192, x3)
    st_f32(out, m)
    st_f32(out + 4, hsum((x0 + x1) + (x2 + x3)))


def _values(heads: int, vectors: int, kind: str) -> Any:
    """(p, v, steps, keys, wide, o, o_stride, ahead): 16*vectors values of the outputs of some heads, over keys in a row. As much memory is
    asked for from ``ahead`` on."""
    bits = BITS[kind]
    start, update, store, fetch = (
        zeros(FLOATS, heads * vectors),
        values_fma(kind, vectors),
        grid_store(vectors),
        prefetcher((2 * bits * vectors + 63) // 64 if TARGET.avx2 else 0),
    )

    @helper
    def values(p: int, v: int, steps: int, keys: int, wide: int, o: int, o_stride: int, ahead: int) -> None:
        acc = start()
        for _ in range(keys):
            fetch(ahead)
            acc = update(acc, v, steps, p, 4 * TILE)
            v += wide * bits // 8
            steps += wide // 16
            p += 4
            ahead += 2 * bits * vectors
        store(acc, o, o_stride)

    return values


def _heads(heads: int, k: str, v: str) -> Any:
    """(q, keys at, values at, d, wide, first, last, scratch, part, stride, ahead): partial results of some heads for the keys first..last
    of a tile."""
    vectors, bits = _vectors(heads), BITS[v]
    least = 2 if v in QUANTISED else 1
    scores, several, few = _scores(heads, k), _values(heads, vectors, v), _values(heads, least, v)

    @helper
    def run(
        q: int, block: int, value: int, d: int, wide: int, first: int, last: int, scratch: int, part: int, stride: int, ahead: int
    ) -> None:
        scores(q, block, d, wide, scratch, value)
        if last - first < TILE - 1:
            for h in range(heads):
                _hide(scratch + 4 * TILE * h, first, last)
        for h in range(heads):
            _softmax(scratch + 4 * TILE * h, part + h * stride)
        p, row, step, keys = scratch + 4 * first, value + first * (wide * bits // 8), value + TILE * wide * bits // 8, last - first + 1
        step += first * (wide // 16)
        i = 0
        while wide - i >= 16 * vectors:
            several(p, row + i * bits // 8, step + i // 16, keys, wide, part + 64 + 4 * i, stride, ahead + TILE * i * bits // 8)
            i += 16 * vectors
        while i < wide:
            few(p, row + i * bits // 8, step + i // 16, keys, wide, part + 64 + 4 * i, stride, ahead + TILE * i * bits // 8)
            i += 16 * least

    return run


@helper
def _first_key(args: int, pos: int) -> int:
    """The first position that the query at ``pos`` sees."""
    window = ld_i64(args + _WINDOW)
    return max(0, pos - window + 1) if window > 0 else 0


@helper
def _block(args: int, state: int, row: int, t: int, g: int) -> Any:
    """Where the keys of a tile and key head lie that a row sees."""
    table = ld_i64(ld_i64(state + 8 * PAGES) + 8 * row) + ld_i64(args + _TABLE_OFFSET)
    page = ld_i64(table + t * ld_i64(args + _TABLE_STEP))
    return page + ld_i64(args + _LAYER_OFFSET) + g * ld_i64(args + _HEAD_BYTES)


def _tile(group: int, k: str, v: str) -> Any:
    """(args, state, row, tile, kv head, scratch, ahead): the tile for all query heads of a key head, a few of them at once."""
    at_once = max(n for n in range(1, _HEADS_AT_ONCE + 1) if group % n == 0)
    several, single = _heads(at_once, k, v), _heads(1, k, v)

    @helper
    def tile(args: int, state: int, row: int, t: int, g: int, scratch: int, ahead: int) -> None:
        pos = ld_i64(ld_i64(state + 8 * POSITIONS) + 8 * row)
        first_key = _first_key(args, pos)
        first, last = max(first_key - t * TILE, 0), min(pos - t * TILE, TILE - 1)
        if first > last:
            return
        heads, d = ld_i64(args + _HEADS), ld_i64(args + _HEAD_DIM)
        left = heads // ld_i64(args + _KV_HEADS)
        wide = ld_i64(args + _WIDE)
        size = 64 + 4 * wide
        stride = size * ld_i64(state + 8 * KEY_TILES)
        part = ld_i64(state + 8 * PARTIALS) + (row * heads + g * left) * stride + (t - first_key // TILE) * size
        block = _block(args, state, row, t, g)
        value = block + ld_i64(args + _KEY_BYTES)
        q = ld_i64(args + _Q) + row * ld_i64(args + _Q_STRIDE) + 4 * g * left * d
        while left >= at_once:
            several(q, block, value, d, wide, first, last, scratch, part, stride, ahead)
            q += 4 * at_once * d
            part += at_once * stride
            left -= at_once
        while left > 0:
            single(q, block, value, d, wide, first, last, scratch, part, stride, ahead)
            q += 4 * d
            part += stride
            left -= 1

    return tile


@helper
def _run(args: int, state: int, row: int, rows: int) -> Any:
    """The rows of one line from ``row`` on that read tiles together: where they end, their first tile and how many there are."""
    positions, pages = ld_i64(state + 8 * POSITIONS), ld_i64(state + 8 * PAGES)
    pos = ld_i64(positions + 8 * row)
    first, last, end = _first_key(args, pos) // TILE, pos // TILE, row + 1
    while (
        end < rows
        and ld_i64(pages + 8 * end) == ld_i64(pages + 8 * row)
        and (end - row) * _PIECES < (last - first + 1) * ld_i64(args + _KV_HEADS)
    ):
        pos = ld_i64(positions + 8 * end)
        first, last, end = min(first, _first_key(args, pos) // TILE), max(last, pos // TILE), end + 1
    return end, first, last - first + 1


@helper
def _piece(args: int, state: int, rows: int, i: int) -> Any:
    """What piece i is: its first row and the end of them, tile and key head; beyond the last one there is no row."""
    row = 0
    while row < rows:
        end, first, tiles = _run(args, state, row, rows)
        pieces = tiles * ld_i64(args + _KV_HEADS)
        if i < pieces:
            return row, end, first + i % tiles, i // tiles
        i -= pieces
        row = end
    return rows, rows, 0, 0


def attend_few(group: int = 4, k: str = "f16", v: str = "f16") -> Callable[..., None]:
    """Kernel (ATTEND): partial results; a piece of work is a tile of keys of one key head, for the rows of one line.

    ``group``: how many query heads share a key head. Every number is right for every model; the model's own is fastest. ``k``, ``v``: types
    of keys and values. A thread takes its next piece early, to ask for its memory in time.
    """
    tile = _tile(group, k, v)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        rows = ld_i64(ld_i64(args + _ROWS))
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        row, end, t, g = _piece(args, state, rows, take(counter))
        while row < rows:
            next_row, next_end, next_t, next_g = _piece(args, state, rows, take(counter))
            ahead = _block(args, state, next_row, next_t, next_g) if next_row < rows else _block(args, state, row, t, g)
            for r in range(row, end):
                tile(args, state, r, t, g, scratch, ahead)
            row, end, t, g = next_row, next_end, next_t, next_g

    return run


@helper
def _factors(part: int, size: int, tiles: int, m: float, old: int, new: int) -> Any:
    """By what each of up to 16 tiles multiplies the sums so far (to old) and its own (to new), and the maximum behind them."""
    for i in range(tiles):
        tile = ld_f32(part + i * size)
        top = tile if tile > m else m
        st_f32(old + 4 * i, m - top)
        st_f32(new + 4 * i, tile - top)
        m = top
    st_f(old, decay(ld_f(old)))
    st_f(new, decay(ld_f(new)))
    return m


def _strip(vectors: int) -> Any:
    """(part, size, tiles, old, new, o): the outputs of some tiles, 16*vectors of them, added to those at o."""
    load, update = loader(FLOATS, vectors), tile_rescaled

    @helper
    def strip(part: int, size: int, tiles: int, old: int, new: int, o: int) -> None:
        acc = load(o, 64)
        for i in range(tiles):
            acc = update(acc, part + i * size, bc_f(new + 4 * i), bc_f(old + 4 * i))
        tile_store(o, 64, acc)

    return strip


_strip1, _strip8 = _strip(1), _strip(8)


@helper
def _merge(part: int, tiles: int, d: int, wide: int, scratch: int, out: int) -> None:
    """All tiles of a head to its output, 16 at a time."""
    size, old, new, sums = 64 + 4 * wide, scratch, scratch + 64, scratch + 128
    m, l = LOWEST, float32(0.0)
    for i in range(0, size + 128, 64):
        st_f(scratch + i, sp_f(float32(0.0)))
    for t in range(0, tiles, 16):
        n = min(tiles - t, 16)
        m = _factors(part, size, n, m, old, new)
        for i in range(n):
            l = fma(ld_f32(part + i * size + 4), ld_f32(new + 4 * i), l * ld_f32(old + 4 * i))
        i = 0
        while wide - i >= 128:
            _strip8(part + 64 + 4 * i, size, n, old, new, sums + 4 * i)
            i += 128
        while i < wide:
            _strip1(part + 64 + 4 * i, size, n, old, new, sums + 4 * i)
            i += 16
        part += n * size
    for i in range(0, d, 16):
        st_part(out + 4 * i, ld_f(sums + 4 * i) / sp_f(l), d - i)


def merge_few() -> Callable[..., None]:
    """Kernel (ATTEND): the tiles of attend_few to the output; a piece of work is one head of a row."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        heads, d, wide = ld_i64(args + _HEADS), ld_i64(args + _HEAD_DIM), ld_i64(args + _WIDE)
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        stride = (64 + 4 * wide) * ld_i64(state + 8 * KEY_TILES)
        pieces = ld_i64(ld_i64(args + _ROWS)) * heads
        i = take(counter)
        while i < pieces:
            row = i // heads
            pos = ld_i64(ld_i64(state + 8 * POSITIONS) + 8 * row)
            tiles = pos // TILE - _first_key(args, pos) // TILE + 1
            out = ld_i64(args + _OUT) + row * ld_i64(args + _OUT_STRIDE) + 4 * (i % heads) * d
            _merge(ld_i64(state + 8 * PARTIALS) + i * stride, tiles, d, wide, scratch, out)
            i = take(counter)

    return run
