"""64 rows of a packed matrix times a few columns, unpacked while they are multiplied; the steps of a block that all products share; and how
groups of rows are handed out."""

from __future__ import annotations

from typing import Any

from numba import njit

from localllm.backends.cpu.arguments_matmul import MATMUL
from localllm.backends.cpu.kernels import signs
from localllm.backends.cpu.kernels.codes import dotter
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import AHEAD, FLOATS, INTS, TARGET
from localllm.backends.cpu.kernels.scales import scales_of
from localllm.backends.cpu.kernels.sync import span, take
from localllm.backends.cpu.kernels.tile import (
    broadcaster,
    half_of,
    joined,
    loader,
    prefetcher,
    stack,
    tile_fma,
    tile_plus,
    tile_scaled,
    tile_store,
    zeros,
)
from localllm.backends.cpu.kernels.vec import ld_i64
from localllm.backends.cpu.layout import X_BLOCK, X_C8, X_C16, X_C32A, X_C32B, X_C128, X_STEP, X_SUM, X_SUM_A, Layout
from localllm.backends.cpu.records import SCRATCH, SCRATCH_BYTES, THREADS

_W, _RECORDS, _X, _X_BYTES, _INIT, _INIT_STRIDE, _OUT, _OUT_STRIDE, _GROUPS, _ROWS = MATMUL.offsets
_TURN = 256
"""Values of a row that are multiplied before the next tile has its turn: few enough for their weights to stay in the first cache."""
_STARTS = {0: 0, 8: X_C8, 16: X_C16, 32: X_C32A, 64: X_C32A, 128: X_C128}


def starter(layout: Layout, n: int, tile: int) -> Any:
    """(x) -> the dots' start for n columns of a tile: minus offset times the sum of the activations, which the quantiser has left there."""
    many = 2 * n if layout.halves else n
    if layout.offset == 0:
        zero = zeros(INTS, many)

        @njit(inline="always")
        def nothing(x: int) -> Any:
            return zero()

        return nothing
    fetch, at = broadcaster(n, 1 if layout.offset == 64 else 0), _STARTS[layout.offset] * tile
    if not layout.halves:

        @njit(inline="always")
        def start(x: int) -> Any:
            return fetch(x + at)

        return start
    last = X_C32B * tile

    @njit(inline="always")
    def starts(x: int) -> Any:
        return joined(fetch(x + at), fetch(x + last))

    return starts


def adder(layout: Layout, tile: int) -> Any:
    """(acc, dot, x, d0, d1, m0, m1) -> acc with the terms of one block; x: activations in a tile of so many columns."""
    step, total, first = X_STEP * tile, X_SUM * tile, X_SUM_A * tile
    halves, mins = layout.halves, layout.mins
    low, high = half_of(0), half_of(1)

    @njit(inline="always")
    def add(acc: Any, dot: Any, x: int, d0: Any, d1: Any, m0: Any, m1: Any) -> Any:
        if halves:
            acc = tile_scaled(acc, low(dot), d0, x + step)
            acc = tile_scaled(acc, high(dot), d1, x + step)
        else:
            acc = tile_scaled(acc, dot, d0, x + step)
        if mins:
            if halves:
                acc = tile_fma(acc, m1, x + total, 4)
                acc = tile_fma(acc, m0, x + first, 4)
            else:
                acc = tile_fma(acc, m0, x + total, 4)
        return acc

    return add


def _stepper(layout: Layout, n: int) -> Any:
    """(acc, w, sub, head, g, x): one block of one tile, straight from the packed form."""
    start, add, scales = starter(layout, n, n), adder(layout, n), scales_of(layout)
    dot = dotter(layout.codes, n, layout.halves, layout.wide)
    d0, d1, m0, m1 = scales.d0, scales.d1, scales.m0, scales.m1

    @njit(inline="always")
    def step(acc: Any, w: int, sub: int, head: int, g: int, x: int) -> Any:
        sums = dot(start(x), w, x)
        return add(acc, sums, x, d0(sub, head, g), d1(sub, head, g), m0(sub, head, g), m1(sub, head, g))

    return step


def group_of(layout: Layout, n: int) -> Any:
    """(w, records, x, x_bytes, init, init_stride, out, out_stride): 64 rows x n columns, n at most FEW."""
    if n <= (2 if TARGET.vnni512 else 1):
        return _group_at_once(layout, n, _stepper(layout, n), X_BLOCK * n)
    return _group_in_turn(layout, n)


def group_of_signs(layout: Layout) -> Any:
    """The same for one column of signs, whose tables (signs.py) are at x."""
    return _group_at_once(layout, 1, signs.stepper(layout), signs.TABLES)


def _group_at_once(layout: Layout, n: int, step: Any, block: int) -> Any:
    """The sums of all four tiles in registers; ``block``: bytes at x for 32 values."""
    zero = zeros(FLOATS, n)
    tile, codes, sub, head, subs = layout.tile_bytes, layout.codes_at, layout.sub_bytes, layout.head, layout.qk // 32
    ahead, fetch = AHEAD, prefetcher(sub // 64)

    @helper
    def group(w: int, records: int, x: int, x_bytes: int, init: int, init_stride: int, out: int, out_stride: int) -> None:
        a0 = zero()
        a1 = zero()
        a2 = zero()
        a3 = zero()
        for _ in range(records):
            top = w
            w += head
            for _ in range(subs):
                if ahead:
                    fetch(w + ahead)
                a0 = step(a0, w + codes, w, top, 0, x)
                a1 = step(a1, w + codes + tile, w, top, 1, x)
                a2 = step(a2, w + codes + 2 * tile, w, top, 2, x)
                a3 = step(a3, w + codes + 3 * tile, w, top, 3, x)
                w += sub
                x += block
        tile_plus(a0, init, init_stride, out, out_stride)
        tile_plus(a1, init + 64, init_stride, out + 64, out_stride)
        tile_plus(a2, init + 128, init_stride, out + 128, out_stride)
        tile_plus(a3, init + 192, init_stride, out + 192, out_stride)

    return group


def _group_in_turn(layout: Layout, n: int) -> Any:
    """The sums of one tile in registers, for _TURN values; those of the other three wait in memory."""
    turn, zero, load, block = _turn(layout, n), zeros(FLOATS, n), loader(FLOATS, n), X_BLOCK * n * layout.qk // 32
    step, record = max(1, _TURN // layout.qk), layout.record_bytes

    @helper
    def group(w: int, records: int, x: int, x_bytes: int, init: int, init_stride: int, out: int, out_stride: int) -> None:
        sums = stack(2048)
        for t in range(4):
            tile_store(sums + 64 * n * t, 64, zero())
        for first in range(0, records, step):
            some = min(step, records - first)
            for t in range(4):
                a = sums + 64 * n * t
                tile_store(a, 64, turn(load(a, 64), w, some, t, x))
            w += some * record
            x += some * block
        for t in range(4):
            tile_plus(load(sums + 64 * n * t, 64), init + 64 * t, init_stride, out + 64 * t, out_stride)

    return group


def _turn(layout: Layout, n: int) -> Any:
    """(acc, w, records, t, x) -> acc with some records of tile t. As many bytes behind them are fetched, a quarter in each turn:
    tiles in turn are no order that a processor would fetch ahead by itself (on Zen 4 this halves the time of 4 rows)."""
    step, block = _stepper(layout, n), X_BLOCK * n
    tile, codes, sub, head, subs = layout.tile_bytes, layout.codes_at, layout.sub_bytes, layout.head, layout.qk // 32
    record, quarter = layout.record_bytes, layout.record_bytes // (4 * subs)
    ahead, fetch = TARGET.avx2, prefetcher(-(-quarter // 64))

    @njit(inline="always")
    def turn(acc: Any, w: int, records: int, t: int, x: int) -> Any:
        f = w + records * record + t * records * subs * quarter
        for _ in range(records):
            top = w
            w += head
            for _ in range(subs):
                if ahead:
                    fetch(f)
                    f += quarter
                acc = step(acc, w + codes + t * tile, w, top, t, x)
                w += sub
                x += block
        return acc

    return turn


def by_groups(group: Any, group_bytes: int, n: int, tile: int, tables: int = 0) -> Any:
    """A kernel (MATMUL) for few rows, of (w, records, x, x_bytes, init, init_stride, out, out_stride) for 64 outputs x n rows, which are a
    piece of work. ``group_bytes``: of 64 rows of one record of the matrix; ``tile``: n rows of activations are so many times x_bytes;
    ``tables``: values of a record, where the group takes a column's tables (signs.py) instead, which each thread makes in its scratch."""
    blocks, make = tables // 32, signs.tables

    def run(args: int, state: int, counter: int, thread: int) -> None:
        records, x_bytes = ld_i64(args + _RECORDS), ld_i64(args + _X_BYTES)
        init_stride, out_stride = ld_i64(args + _INIT_STRIDE), ld_i64(args + _OUT_STRIDE)
        tiles = (ld_i64(ld_i64(args + _ROWS)) + n - 1) // n
        groups, threads = ld_i64(args + _GROUPS), ld_i64(state + 8 * THREADS)
        scratch, made = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES), 0
        g, last = span(thread, groups, threads)
        while g < groups:
            x = ld_i64(args + _X)
            init, out = ld_i64(args + _INIT) + 256 * g, ld_i64(args + _OUT) + 256 * g
            for _ in range(tiles):
                if tables and made != x:
                    make(x, records * blocks, scratch)
                    made = x
                at = scratch if tables else x
                group(ld_i64(args + _W) + g * records * group_bytes, records, at, x_bytes, init, init_stride, out, out_stride)
                x += tile * x_bytes
                init += n * init_stride
                out += n * out_stride
            g += 1
            if g == last:
                g, last = span(threads + take(counter), groups, threads)

    return run
