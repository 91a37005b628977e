"""Matrices of blocks times activations of bytes: y (T, N) = x (T, K) @ w (N, K)^T + init.

Whatever the number of columns, a row's float terms are added in one order, block by block of 32:
    a = fma(float(dot) * step, d, a);  a = fma(m, step * sum, a);   at the end  y = a + init
so one column and 512 give the same bits. Two ways: ``few`` unpacks while it multiplies (groups.py); ``many`` unpacks 64 rows once for all
columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from localllm.backends.cpu.arguments_matmul import MATMUL
from localllm.backends.cpu.kernels.codes import dotter, unpacker
from localllm.backends.cpu.kernels.groups import adder, by_groups, group_of, group_of_signs, starter
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import BYTE_TABLES, FLOATS
from localllm.backends.cpu.kernels.scales import scales_of
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import tile_plus, zeros
from localllm.backends.cpu.kernels.vec import ld_f, ld_i64, st_f
from localllm.backends.cpu.layout import LAYOUTS, MANY, X_BLOCK, Layout
from localllm.backends.cpu.records import SCRATCH, SCRATCH_BYTES

_W, _RECORDS, _X, _X_BYTES, _INIT, _INIT_STRIDE, _OUT, _OUT_STRIDE, _GROUPS, _ROWS = MATMUL.offsets
_MICRO = MANY // 2
"""Columns that registers hold the sums of beside the operands."""


def few(name: str, n: int) -> Callable[..., None]:
    """Kernel: column tiles of n; a piece of work is 64 rows."""
    layout = LAYOUTS[name]
    tables = layout.qk if n == 1 and layout.codes == "one" and BYTE_TABLES else 0
    group = group_of_signs(layout) if tables else group_of(layout, n)
    kernel: Callable[..., None] = by_groups(group, layout.record_bytes, n, 1, tables)
    return kernel


def unpacker_of(layout: Layout) -> Any:
    """(sub, top, g, u): tile g of a sub-record to bytes and float scales; top: its record."""
    scales, values = scales_of(layout), unpacker(layout.codes)
    tile, codes, halves, mins, at = (
        layout.tile_bytes,
        layout.codes_at,
        layout.halves,
        layout.mins,
        512 + 64 * (1 + layout.halves),
    )
    d0, d1, m0, m1 = scales.d0, scales.d1, scales.m0, scales.m1

    @njit(inline="always")
    def unpack(sub: int, top: int, g: int, u: int) -> None:
        values(sub + codes + tile * g, u)
        st_f(u + 512, d0(sub, top, g))
        if halves:
            st_f(u + 576, d1(sub, top, g))
        if mins:
            st_f(u + at, m0(sub, top, g))
            if halves:
                st_f(u + at + 64, m1(sub, top, g))

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
    start, add, zero = starter(layout, n, MANY), adder(layout, MANY), zeros(FLOATS, n)
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
