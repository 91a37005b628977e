"""Matrices of floats (F32, F16, BF16) times float32 rows. One chain of fused multiply-adds over the columns for each output, whatever the
number of rows: the same bits for one and for many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localllm.backends.cpu.arguments_matmul import MATMUL
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import FLOATS as VECTOR
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import tile_fma, tile_plus, zeros
from localllm.backends.cpu.kernels.vec import ld_bf, ld_f, ld_h, ld_i64
from localllm.backends.cpu.layout import FLOATS

_W, _COLUMNS, _X, _X_STRIDE, _INIT, _INIT_STRIDE, _OUT, _OUT_STRIDE, _GROUPS, _ROWS = MATMUL.offsets


def loader_of(name: str) -> Any:
    """The load of 16 values of that format as float32."""
    return {"F32": ld_f, "F16": ld_h, "BF16": ld_bf}[name]


def _tile(name: str, n: int) -> Any:
    """(w, columns, x, x_stride, init, init_stride, out, out_stride): 16 rows x n columns."""
    step, fetch, zero = 64 * FLOATS[name], loader_of(name), zeros(VECTOR, n)

    @helper
    def tile(w: int, columns: int, x: int, x_stride: int, init: int, init_stride: int, out: int, out_stride: int) -> None:
        acc = zero()
        for _ in range(columns):
            acc = tile_fma(acc, fetch(w), x, x_stride)
            w += step
            x += 4
        tile_plus(acc, init, init_stride, out, out_stride)

    return tile


def single_column(name: str) -> Any:
    """The same for one column and 64 rows, all four tiles at once."""
    size, fetch, zero = FLOATS[name], loader_of(name), zeros(VECTOR, 1)

    @helper
    def single(w: int, columns: int, x: int, x_stride: int, init: int, init_stride: int, out: int, out_stride: int) -> None:
        a0 = zero()
        a1 = zero()
        a2 = zero()
        a3 = zero()
        for _ in range(columns):
            a0 = tile_fma(a0, fetch(w), x, 0)
            a1 = tile_fma(a1, fetch(w + 16 * size), x, 0)
            a2 = tile_fma(a2, fetch(w + 32 * size), x, 0)
            a3 = tile_fma(a3, fetch(w + 48 * size), x, 0)
            w += 64 * size
            x += 4
        tile_plus(a0, init, init_stride, out, out_stride)
        tile_plus(a1, init + 64, init_stride, out + 64, out_stride)
        tile_plus(a2, init + 128, init_stride, out + 128, out_stride)
        tile_plus(a3, init + 192, init_stride, out + 192, out_stride)

    return single


def matmul(name: str, n: int) -> Callable[..., None]:
    """Kernel: n rows at a time; a piece of work is 64 outputs."""
    size = FLOATS[name]
    body, tiles = (single_column(name), 1) if n == 1 else (_tile(name, n), 4)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        columns, x_stride = ld_i64(args + _COLUMNS), ld_i64(args + _X_STRIDE)
        init_stride, out_stride = ld_i64(args + _INIT_STRIDE), ld_i64(args + _OUT_STRIDE)
        count = (ld_i64(ld_i64(args + _ROWS)) + n - 1) // n
        g = take(counter)
        while g < ld_i64(args + _GROUPS):
            w = ld_i64(args + _W) + g * columns * 64 * size
            for c in range(count):
                x = ld_i64(args + _X) + c * n * x_stride
                init = ld_i64(args + _INIT) + 256 * g + c * n * init_stride
                out = ld_i64(args + _OUT) + 256 * g + c * n * out_stride
                for t in range(tiles):
                    body(w + 16 * size * t, columns, x, x_stride, init + 64 * t, init_stride, out + 64 * t, out_stride)
            g = take(counter)

    return run
