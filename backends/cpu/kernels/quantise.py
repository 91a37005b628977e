"""Activations to bytes: float32 rows to column tiles, normalised first where the row of the tape says so.

32 values share a float32 step, largest |x| / 127, as in GGUF's Q8_0. A block with a value that is not finite gets a step of NaN, so that
the outputs say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float32, int32

from localllm.backends.cpu.arguments_matmul import GATED, QUANTISE
from localllm.backends.cpu.kernels.glu import ACTIVATIONS
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
_GATE, _GATE_STRIDE, _UP, _UP_STRIDE, _G_BLOCKS, _G_OUT, _G_OUT_BYTES, _G_ROWS = GATED.offsets
_PIECE = 32
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


def _block(n: int) -> Any:
    """(x0, x1, out): 32 values to column j of a block of the tile; out is the block's address + 4*j."""
    blank = _blanker(n)

    @helper
    def block(x0: Any, x1: Any, out: int) -> None:
        zero = sp_f(float32(0.0))
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

    return block


def rows(n: int) -> Callable[..., None]:
    """Kernel: column tiles of n rows; a piece of work is a tile."""
    block, blank = _block(n), _blanker(n)

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
                for b in range(blocks):
                    block(ld_f(x + 128 * b), ld_f(x + 128 * b + 64), out + 4 * j + b * n * X_BLOCK)
            t = take(counter)

    return run


def gated(act: str, n: int) -> Callable[..., None]:
    """Kernel: column tiles of act(gate) * up, which is not written anywhere else; a piece of work is _PIECE blocks of a tile."""
    block, blank, activate = _block(n), _blanker(n), ACTIVATIONS[act]

    def run(args: int, state: int, counter: int, thread: int) -> None:
        count, blocks = ld_i64(ld_i64(args + _G_ROWS)), ld_i64(args + _G_BLOCKS)
        pieces = (blocks + _PIECE - 1) // _PIECE
        i = take(counter)
        while i // pieces * n < count:
            t, first = i // pieces, i % pieces * _PIECE
            for j in range(n):
                row = t * n + j
                gate = ld_i64(args + _GATE) + row * ld_i64(args + _GATE_STRIDE)
                up = ld_i64(args + _UP) + row * ld_i64(args + _UP_STRIDE)
                out = ld_i64(args + _G_OUT) + t * ld_i64(args + _G_OUT_BYTES) + 4 * j
                for b in range(first, min(first + _PIECE, blocks)):
                    if row < count:
                        x0 = activate(ld_f(gate + 128 * b)) * ld_f(up + 128 * b)
                        x1 = activate(ld_f(gate + 128 * b + 64)) * ld_f(up + 128 * b + 64)
                        block(x0, x1, out + b * n * X_BLOCK)
                    else:
                        blank(out + b * n * X_BLOCK, float32(0.0))
            i = take(counter)

    return run
