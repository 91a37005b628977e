"""Root-mean-square norm, and the addition of two registers."""

from __future__ import annotations

from collections.abc import Callable

from numba import float32, int32

from localllm.backends.cpu.arguments import ADD, RMS_NORM
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.maths import root
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.vec import float_of, fma, hsum, ld_f, ld_i32, ld_i64, sp_f, st_f

_X, _X_STRIDE, _WEIGHT, _N, _EPS, _OUT, _OUT_STRIDE, _ROWS = RMS_NORM.offsets
_A, _A_STRIDE, _B, _B_STRIDE, _SUM, _SUM_STRIDE, _WIDTH, _ADD_ROWS = ADD.offsets
SEGMENT = 1024
"""Floats of a row that are a piece of work where values don't depend on each other."""


@helper
def rms_norm_row(x: int, weight: int, n: int, eps: float, out: int) -> None:
    """out = x / sqrt(mean(x^2) + eps) * weight for one row of n floats. All three are padded with zeros to a multiple of 64.

    The squares are added in 64 chains, then in a fixed tree. ``out`` may be x.
    """
    zero = sp_f(float32(0.0))
    a, b, c, d = zero, zero, zero, zero
    for i in range(0, 4 * n, 256):
        v0, v1, v2, v3 = ld_f(x + i), ld_f(x + i + 64), ld_f(x + i + 128), ld_f(x + i + 192)
        a, b, c, d = fma(v0, v0, a), fma(v1, v1, b), fma(v2, v2, c), fma(v3, v3, d)
    scale = sp_f(float32(1.0 / root(hsum((a + b) + (c + d)) / n + eps)))
    for i in range(0, (n + 63) // 64 * 256, 64):
        st_f(out + i, ld_f(x + i) * scale * ld_f(weight + i))


def rms_norm() -> Callable[..., None]:
    """Kernel (RMS_NORM): a piece of work is a row."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        rows = ld_i64(ld_i64(args + _ROWS))
        eps = float_of(int32(ld_i32(args + _EPS)))
        i = take(counter)
        while i < rows:
            x = ld_i64(args + _X) + i * ld_i64(args + _X_STRIDE)
            out = ld_i64(args + _OUT) + i * ld_i64(args + _OUT_STRIDE)
            rms_norm_row(x, ld_i64(args + _WEIGHT), ld_i64(args + _N), eps, out)
            i = take(counter)

    return run


def add() -> Callable[..., None]:
    """Kernel (ADD): out = a + b; a piece of work is a segment of a row."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        n = (ld_i64(args + _WIDTH) + 63) // 64 * 64
        segments = (n + SEGMENT - 1) // SEGMENT
        pieces = segments * ld_i64(ld_i64(args + _ADD_ROWS))
        i = take(counter)
        while i < pieces:
            row, first = i // segments, i % segments * SEGMENT
            a = ld_i64(args + _A) + row * ld_i64(args + _A_STRIDE)
            b = ld_i64(args + _B) + row * ld_i64(args + _B_STRIDE)
            out = ld_i64(args + _SUM) + row * ld_i64(args + _SUM_STRIDE)
            for k in range(4 * first, 4 * min(first + SEGMENT, n), 64):
                st_f(out + k, ld_f(a + k) + ld_f(b + k))
            i = take(counter)

    return run
