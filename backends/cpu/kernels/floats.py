"""Matrices of floats (F32, F16, BF16) times float32 rows. One chain of fused multiply-adds over the columns for each output, whatever the
number of rows: the same bits for one and for many. Two ways: ``few`` widens while it multiplies; ``many`` widens 64 rows x SPAN columns
once for all rows, small enough to stay in the first cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localllm.backends.cpu.arguments_matmul import MATMUL
from localllm.backends.cpu.kernels.grid import grid_fma, grid_load, grid_plus, grid_store
from localllm.backends.cpu.kernels.groups import by_groups
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import AHEAD, TARGET
from localllm.backends.cpu.kernels.ir import FLOATS as VECTOR
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import prefetcher, zeros
from localllm.backends.cpu.kernels.vec import ld_bf, ld_f, ld_h, ld_i64, st_f
from localllm.backends.cpu.layout import FLOATS, GROUP, SPAN
from localllm.backends.cpu.records import SCRATCH, SCRATCH_BYTES

_W, _COLUMNS, _X, _X_STRIDE, _INIT, _INIT_STRIDE, _OUT, _OUT_STRIDE, _GROUPS, _ROWS = MATMUL.offsets
_AT_ONCE = 4
"""Activation rows that ``many`` multiplies at once."""
_PIECE = 128
"""Activation rows in a piece of work: few enough that threads end together, so many that widening the weights costs little."""


def loader_of(name: str) -> Any:
    """The load of 16 values of that format as float32."""
    return {"F32": ld_f, "F16": ld_h, "BF16": ld_bf}[name]


def _tiles(n: int) -> int:
    """Tiles of 16 matrix rows that registers hold at once beside n activation rows: 16 vectors of 64 bytes, or of what is shorter 4."""
    return 4 if TARGET.vnni512 else max(1, 4 // n)


def group_of(name: str, n: int) -> Any:
    """(w, columns, x, x_stride, init, init_stride, out, out_stride): 64 rows x n columns, n at most 4."""
    size, tiles = FLOATS[name], _tiles(n)
    zero, multiply, finish = zeros(VECTOR, tiles * n), grid_fma(name, tiles), grid_plus(tiles)
    ahead, fetch = AHEAD, prefetcher(size)

    @helper
    def group(w: int, columns: int, x: int, x_stride: int, init: int, init_stride: int, out: int, out_stride: int) -> None:
        for t in range(0, 4, tiles):
            acc = zero()
            p = w + 16 * size * t
            for k in range(columns):
                if ahead:
                    fetch(p + ahead)
                acc = multiply(acc, p, 16 * size, x + 4 * k, x_stride)
                p += 64 * size
            finish(acc, init + 64 * t, init_stride, out + 64 * t, out_stride)

    return group


def few(name: str, n: int) -> Callable[..., None]:
    """Kernel: n rows at a time; a piece of work is 64 outputs."""
    kernel: Callable[..., None] = by_groups(group_of(name, n), GROUP * FLOATS[name], n, n)
    return kernel


def _widen(name: str) -> Any:
    """(w, columns, u): 64 rows x so many columns as float32: [tile][SPAN][16]."""
    size, fetch = FLOATS[name], loader_of(name)

    @helper
    def widen(w: int, columns: int, u: int) -> None:
        for _ in range(columns):
            st_f(u, fetch(w))
            st_f(u + 64 * SPAN, fetch(w + 16 * size))
            st_f(u + 128 * SPAN, fetch(w + 32 * size))
            st_f(u + 192 * SPAN, fetch(w + 48 * size))
            w += 64 * size
            u += 64

    return widen


def _stretch() -> Any:
    """(u, columns, first, last, x, x_stride, init, init_stride, out, out_stride): widened rows x _AT_ONCE, where ``out`` holds the chains
    between the first span of columns and the last."""
    n, tiles = _AT_ONCE, _tiles(_AT_ONCE)
    zero, again, keep = zeros(VECTOR, tiles * n), grid_load(tiles, n), grid_store(tiles)
    multiply, finish = grid_fma("F32", tiles), grid_plus(tiles)

    @helper
    def stretch(
        u: int, columns: int, first: bool, last: bool, x: int, x_stride: int, init: int, init_stride: int, out: int, out_stride: int
    ) -> None:
        for t in range(0, 4, tiles):
            acc = zero()
            if not first:
                acc = again(out + 64 * t, out_stride)
            p = u + 64 * SPAN * t
            for k in range(columns):
                acc = multiply(acc, p + 64 * k, 64 * SPAN, x + 4 * k, x_stride)
            if last:
                finish(acc, init + 64 * t, init_stride, out + 64 * t, out_stride)
            else:
                keep(acc, out + 64 * t, out_stride)

    return stretch


def many(name: str) -> Callable[..., None]:
    """Kernel: a piece of work is 64 outputs of _PIECE rows, SPAN columns after another. Pieces of the same rows follow one another, so that
    these stay in the second cache."""
    size, widen, stretch, n = FLOATS[name], _widen(name), _stretch(), _AT_ONCE

    def run(args: int, state: int, counter: int, thread: int) -> None:
        columns, groups, rows = ld_i64(args + _COLUMNS), ld_i64(args + _GROUPS), ld_i64(ld_i64(args + _ROWS))
        x_stride, init_stride, out_stride = ld_i64(args + _X_STRIDE), ld_i64(args + _INIT_STRIDE), ld_i64(args + _OUT_STRIDE)
        u = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        i = take(counter)
        while i < groups * ((rows + _PIECE - 1) // _PIECE):
            g, top = i % groups, i // groups * _PIECE
            for k in range(0, columns, SPAN):
                some = min(SPAN, columns - k)
                widen(ld_i64(args + _W) + (g * columns + k) * 64 * size, some, u)
                x = ld_i64(args + _X) + top * x_stride + 4 * k
                init = ld_i64(args + _INIT) + top * init_stride + 256 * g
                out = ld_i64(args + _OUT) + top * out_stride + 256 * g
                for _ in range(top, min(top + _PIECE, rows), n):
                    stretch(u, some, k == 0, k + SPAN >= columns, x, x_stride, init, init_stride, out, out_stride)
                    x += n * x_stride
                    init += n * init_stride
                    out += n * out_stride
            i = take(counter)

    return run
