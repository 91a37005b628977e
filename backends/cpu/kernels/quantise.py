"""Activations to bytes: float32 rows to column tiles, normalised first where the row of the tape says so.

32 values share a float32 step, largest |x| / 127, as in GGUF's Q8_0. A block with a value that is not finite gets a step of NaN, so that
the outputs say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float32, int32

from localllm.backends.cpu.arguments_matmul import QUANTISE
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.norm import rms_norm_row
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.vec import (
    float_of,
    fma,
    hmax,
    hsum,
    hsum_i,
    ld_f,
    ld_i32,
    ld_i64,
    scatter4,
    sp_f,
    st_f32,
    st_i32,
    to_b16,
    to_i,
    vabs,
    vmax,
    vround,
)
from localllm.backends.cpu.layout import X_BLOCK, X_C8, X_C16, X_C32A, X_C32B, X_C128, X_STEP, X_SUM, X_SUM_A

_X, _X_STRIDE, _BLOCKS, _NORM, _N, _EPS, _NORMED, _NORMED_STRIDE, _OUT, _OUT_BYTES, _ROWS = QUANTISE.offsets
_SMALLEST = float32(1e-30)
"""Below this 127 / largest would come near to infinity."""
_FINITE = float32(3.4028234e38)


def _blanker(n: int) -> Any:
    """(out, step): a block of zeros."""

    @helper
    def blank(out: int, step: float) -> None:
        for i in range(X_BLOCK // 4):
            st_i32(out + 4 * n * i, int32(0))
        st_f32(out + X_STEP * n, step)
        st_f32(out + X_SUM * n, step)
        st_f32(out + X_SUM_A * n, step)

    return blank


def _row(n: int) -> Any:
    """(x, blocks, out): a row to column j of the tile; out is the tile's address + 4*j."""
    blank = _blanker(n)

    @helper
    def row(x: int, blocks: int, out: int) -> None:
        zero = sp_f(float32(0.0))
        for _ in range(blocks):
            x0 = ld_f(x)
            x1 = ld_f(x + 64)
            largest = hmax(vmax(vabs(x0), vabs(x1))) + hsum(fma(x0, zero, x1 * zero))  # NaN where anything is not finite
            if not (largest >= _SMALLEST and largest <= _FINITE):  # zeros, or NaN
                blank(out, largest * float32(0.0))
            else:
                step = largest * float32(1.0 / 127.0)
                factor = sp_f(float32(127.0) / largest)
                q0 = to_i(vround(x0 * factor))
                q1 = to_i(vround(x1 * factor))
                scatter4(out, 4 * n, to_b16(q0))
                scatter4(out + 16 * n, 4 * n, to_b16(q1))
                a = hsum_i(q0)
                c = hsum_i(q1)
                st_i32(out + X_C8 * n, int32(-8) * (a + c))
                st_i32(out + X_C16 * n, int32(-16) * (a + c))
                st_i32(out + X_C128 * n, int32(-128) * (a + c))
                st_i32(out + X_C32A * n, int32(-32) * a)
                st_i32(out + X_C32B * n, int32(-32) * c)
                st_f32(out + X_STEP * n, step)
                st_f32(out + X_SUM * n, float32(a + c) * step)
                st_f32(out + X_SUM_A * n, float32(a) * step)
            x += 128
            out += n * X_BLOCK

    return row


def rows(n: int) -> Callable[..., None]:
    """Kernel: column tiles of n rows; a piece of work is a tile."""
    row, blank = _row(n), _blanker(n)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        count = ld_i64(ld_i64(args + _ROWS))
        blocks = ld_i64(args + _BLOCKS)
        eps = float_of(int32(ld_i32(args + _EPS)))
        t = take(counter)
        while t * n < count:
            out = ld_i64(args + _OUT) + t * ld_i64(args + _OUT_BYTES)
            for j in range(n):
                i = t * n + j
                if i >= count:
                    for b in range(blocks):
                        blank(out + 4 * j + b * n * X_BLOCK, float32(0.0))
                    continue
                x = ld_i64(args + _X) + i * ld_i64(args + _X_STRIDE)
                if ld_i64(args + _NORM) != 0:
                    normed = ld_i64(args + _NORMED) + i * ld_i64(args + _NORMED_STRIDE)
                    rms_norm_row(x, ld_i64(args + _NORM), ld_i64(args + _N), eps, normed)
                    x = normed
                row(x, blocks, out + 4 * j)
            t = take(counter)

    return run
