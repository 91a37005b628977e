"""Matrices of blocks times activations of bytes: y (T, N) = x (T, K) @ w (N, K)^T + init.

Whatever the number of columns, a row's float terms are added in one order, block by block of 32:
    a = fma(float(dot) * step, d, a);  a = fma(m, step * sum, a);   at the end  y = a + init
so one column and 512 give the same bits. Two ways: ``few`` unpacks while it multiplies; ``many`` unpacks 64 rows once for all columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from localllm.backends.cpu.arguments_matmul import MATMUL
from localllm.backends.cpu.kernels.codes import dotter, unpacker
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import AHEAD, FLOATS, INTS, TARGET
from localllm.backends.cpu.kernels.scales import scales_of
from localllm.backends.cpu.kernels.sync import span, take
from localllm.backends.cpu.kernels.tile import broadcaster, half_of, joined, prefetcher, tile_fma, tile_plus, tile_scaled, zeros
from localllm.backends.cpu.kernels.vec import ld_f, ld_i64, st_f
from localllm.backends.cpu.layout import LAYOUTS, MANY, X_BLOCK, X_C8, X_C16, X_C32A, X_C32B, X_C128, X_STEP, X_SUM, X_SUM_A, Layout
from localllm.backends.cpu.records import SCRATCH, SCRATCH_BYTES, THREADS

_W, _RECORDS, _X, _X_BYTES, _INIT, _INIT_STRIDE, _OUT, _OUT_STRIDE, _GROUPS, _ROWS = MATMUL.offsets
_MICRO = MANY // 2
"""Columns that registers hold the sums of beside the operands."""
_STARTS = {0: 0, 8: X_C8, 16: X_C16, 32: X_C32A, 64: X_C32A, 128: X_C128}


def _starter(layout: Layout, n: int, tile: int) -> Any:
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


def _adder(layout: Layout, tile: int) -> Any:
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
    start, add, scales = _starter(layout, n, n), _adder(layout, n), scales_of(layout)
    dot = dotter(layout.codes, n, layout.halves, layout.wide)
    d0, d1, m0, m1 = scales.d0, scales.d1, scales.m0, scales.m1

    @njit(inline="always")
    def step(acc: Any, w: int, sub: int, head: int, g: int, x: int) -> Any:
        sums = dot(start(x), w, x)
        return add(acc, sums, x, d0(sub, head, g), d1(sub, head, g), m0(sub, head, g), m1(sub, head, g))

    return step


def _side_by_side(n: int) -> int:
    """Tiles of 16 rows that registers hold the sums of for n columns, beside the operands."""
    return (4 if n <= 4 else 1) if TARGET.vnni512 else max(1, 4 // n)


def _steps(layout: Layout, n: int, count: int) -> Any:
    """(acc, w, sub, head, g, x): as _stepper, for ``count`` tiles from the g-th on, a power of two; acc: theirs in a row."""
    if count == 1:
        return _stepper(layout, n)
    some, low, high, half = _steps(layout, n, count // 2), half_of(0), half_of(1), count // 2
    further = half * layout.tile_bytes

    @njit(inline="always")
    def steps(acc: Any, w: int, sub: int, head: int, g: int, x: int) -> Any:
        return joined(some(low(acc), w, sub, head, g, x), some(high(acc), w + further, sub, head, g + half, x))

    return steps


def _finisher(count: int) -> Any:
    """(acc, init, init_stride, out, out_stride): ``count`` tiles, plus init, to out."""
    if count == 1:
        return tile_plus
    some, low, high, further = _finisher(count // 2), half_of(0), half_of(1), 32 * count

    @njit(inline="always")
    def finish(acc: Any, init: int, init_stride: int, out: int, out_stride: int) -> None:
        some(low(acc), init, init_stride, out, out_stride)
        some(high(acc), init + further, init_stride, out + further, out_stride)

    return finish


def _sweep(layout: Layout, n: int, count: int) -> Any:
    """(w, records, g, x, init, init_stride, out, out_stride): ``count`` tiles from the g-th on x n columns."""
    steps, finish, zero, block = _steps(layout, n, count), _finisher(count), zeros(FLOATS, n * count), X_BLOCK * n
    tile, values, sub, head, subs = layout.tile_bytes, 4 * layout.tile_bytes, layout.sub_bytes, layout.head, layout.qk // 32
    ahead, fetch = AHEAD, prefetcher(sub // 64)

    @helper
    def sweep(w: int, records: int, g: int, x: int, init: int, init_stride: int, out: int, out_stride: int) -> None:
        acc = zero()
        for _ in range(records):
            top = w
            w += head
            for _ in range(subs):
                if ahead and g == 0:
                    fetch(w + ahead)
                acc = steps(acc, w + g * tile, w + values, top, g, x)
                w += sub
                x += block
        finish(acc, init, init_stride, out, out_stride)

    return sweep


def group_of(layout: Layout, n: int) -> Any:
    """(w, records, x, init, init_stride, out, out_stride): 64 rows x n columns, n at most FEW."""
    at_once = _side_by_side(n)
    sweep = _sweep(layout, n, at_once)

    @helper
    def group(w: int, records: int, x: int, init: int, init_stride: int, out: int, out_stride: int) -> None:
        for g in range(0, 4, at_once):
            sweep(w, records, g, x, init + 64 * g, init_stride, out + 64 * g, out_stride)

    return group


def few(name: str, n: int) -> Callable[..., None]:
    """Kernel: column tiles of n; a piece of work is 64 rows."""
    layout = LAYOUTS[name]
    group, record = group_of(layout, n), layout.record_bytes

    def run(args: int, state: int, counter: int, thread: int) -> None:
        records, x_bytes = ld_i64(args + _RECORDS), ld_i64(args + _X_BYTES)
        init_stride, out_stride = ld_i64(args + _INIT_STRIDE), ld_i64(args + _OUT_STRIDE)
        tiles = (ld_i64(ld_i64(args + _ROWS)) + n - 1) // n
        groups, threads = ld_i64(args + _GROUPS), ld_i64(state + 8 * THREADS)
        g, last = span(thread, groups, threads)
        while g < groups:
            x = ld_i64(args + _X)
            init, out = ld_i64(args + _INIT) + 256 * g, ld_i64(args + _OUT) + 256 * g
            for _ in range(tiles):
                group(ld_i64(args + _W) + g * records * record, records, x, init, init_stride, out, out_stride)
                x += x_bytes
                init += n * init_stride
                out += n * out_stride
            g += 1
            if g == last:
                g, last = span(threads + take(counter), groups, threads)

    return run


def unpacker_of(layout: Layout) -> Any:
    """(sub, top, g, u): tile g of a sub-record to bytes and float scales; top: its record."""
    scales, values = scales_of(layout), unpacker(layout.codes)
    tile, all_values, halves, mins, at = (
        layout.tile_bytes,
        4 * layout.tile_bytes,
        layout.halves,
        layout.mins,
        512 + 64 * (1 + layout.halves),
    )
    d0, d1, m0, m1 = scales.d0, scales.d1, scales.m0, scales.m1

    @njit(inline="always")
    def unpack(sub: int, top: int, g: int, u: int) -> None:
        values(sub + tile * g, u)
        st_f(u + 512, d0(sub + all_values, top, g))
        if halves:
            st_f(u + 576, d1(sub + all_values, top, g))
        if mins:
            st_f(u + at, m0(sub + all_values, top, g))
            if halves:
                st_f(u + at + 64, m1(sub + all_values, top, g))

    return unpack


def _unpack(layout: Layout) -> Any:
    """(w, records, g, u): tile g of 64 packed rows to bytes and float scales."""
    one, head, sub, subs, size = unpacker_of(layout), layout.head, layout.sub_bytes, layout.qk // 32, layout.unpacked_bytes

    @helper
    def unpack(w: int, records: int, g: int, u: int) -> None:
        for _ in range(records):
            top = w
            w += head
            for _ in range(subs):
                one(w, top, g, u)
                w += sub
                u += size

    return unpack


def _micro(layout: Layout) -> Any:
    """(u, blocks, x, init, init_stride, out, out_stride): 16 unpacked rows x _MICRO columns of a tile of MANY."""
    n = _MICRO
    start, add, zero = _starter(layout, n, MANY), _adder(layout, MANY), zeros(FLOATS, n)
    dot = dotter("byte", n, layout.halves, layout.wide, MANY)
    size, block, halves, mins, at = layout.unpacked_bytes, X_BLOCK * MANY, layout.halves, layout.mins, 512 + 64 * (1 + layout.halves)
    second, minimum = (576 if halves else 512), (at if mins else 512)
    last = at + 64 if mins and halves else 512

    @helper
    def micro(u: int, blocks: int, x: int, init: int, init_stride: int, out: int, out_stride: int) -> None:
        acc = zero()
        for _ in range(blocks):
            sums = dot(start(x), u, x)
            acc = add(acc, sums, x, ld_f(u + 512), ld_f(u + second), ld_f(u + minimum), ld_f(u + last))
            u += size
            x += block
        tile_plus(acc, init, init_stride, out, out_stride)

    return micro


def many(name: str) -> Callable[..., None]:
    """Kernel: column tiles of MANY; a piece of work is 64 rows, unpacked into the thread's scratch."""
    layout = LAYOUTS[name]
    unpack, micro, record, size = _unpack(layout), _micro(layout), layout.record_bytes, layout.unpacked_bytes
    subs = layout.qk // 32

    def run(args: int, state: int, counter: int, thread: int) -> None:
        records, x_bytes = ld_i64(args + _RECORDS), ld_i64(args + _X_BYTES)
        init_stride, out_stride = ld_i64(args + _INIT_STRIDE), ld_i64(args + _OUT_STRIDE)
        rows = ld_i64(ld_i64(args + _ROWS))
        u = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        blocks = records * subs
        g = take(counter)
        while g < ld_i64(args + _GROUPS):
            for t in range(4):
                unpack(ld_i64(args + _W) + g * records * record, records, t, u + t * blocks * size)
            x = ld_i64(args + _X)
            init, out = ld_i64(args + _INIT) + 256 * g, ld_i64(args + _OUT) + 256 * g
            for first in range(0, rows, _MICRO):
                for t in range(4):
                    micro(u + t * blocks * size, blocks, x, init + 64 * t, init_stride, out + 64 * t, out_stride)
                x += x_bytes - 4 * _MICRO if first % MANY else 4 * _MICRO
                init += _MICRO * init_stride
                out += _MICRO * out_stride
            g = take(counter)

    return run
