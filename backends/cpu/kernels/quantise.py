"""Activations to bytes: float32 rows to column tiles, normalised first where the row of the tape says so.

The step of 32 values is base * 2^e: a power of two for each block, and one float for each row (largest |x| / 127 / 2^24). A block's largest
value is between 64 and 127 steps.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import float32, int32

from localllm.backends.cpu.arguments_matmul import QUANTISE
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.norm import rms_norm_row
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.vec import (
    bits_of,
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
from localllm.backends.cpu.layout import X_BLOCK, X_C8, X_C16, X_C32A, X_C32B, X_C128, X_EXPONENT, X_SUM, X_SUM_A

_X, _X_STRIDE, _BLOCKS, _NORM, _N, _EPS, _NORMED, _NORMED_STRIDE, _OUT, _OUT_BYTES, _ROWS = QUANTISE.offsets
_EXPONENTS = 24


@helper
def _largest(x: int, blocks: int) -> float:
    """Largest |x| of a row; NaN where anything in it is not finite."""
    top = sp_f(float32(0.0))
    poison = top
    zero = top
    for i in range(2 * blocks):
        v = ld_f(x + 64 * i)
        top = vmax(top, vabs(v))
        poison = fma(v, zero, poison)
    return hmax(top) + hsum(poison)


def _blanker(n: int):  # type: ignore[no-untyped-def]
    @helper
    def blank(out: int, blocks: int, base: float) -> None:
        for i in range(blocks * X_BLOCK // 4):
            st_i32(out + 4 * n * i, int32(0))
        st_f32(out + n * X_BLOCK * blocks, base)

    return blank


def _row(n: int):  # type: ignore[no-untyped-def]
    """(x, blocks, out): a row to column j of the tile; out is the tile's address + 4*j."""
    blank = _blanker(n)

    @helper
    def row(x: int, blocks: int, out: int) -> None:
        largest = _largest(x, blocks)
        if not (largest >= float32(1e-30)):  # zero, or NaN: the base carries it on
            blank(out, blocks, largest * float32(0.0))
            return
        st_f32(out + n * X_BLOCK * blocks, largest * float32(2.0**-_EXPONENTS / 127.0))
        inverse = float32(127.0) / largest
        for _ in range(blocks):
            x0 = ld_f(x)
            x1 = ld_f(x + 64)
            ratio = bits_of(hmax(vmax(vabs(x0), vabs(x1))) / largest)
            e = ((ratio + int32(0x7FFFFF)) >> int32(23)) - int32(127 - _EXPONENTS)  # ceil(log2(ratio)) + 24
            if e < 0:
                e = int32(0)
            factor = sp_f(inverse * float_of(int32((127 + _EXPONENTS - e) << 23)))
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
            st_i32(out + X_EXPONENT * n, int32(e << 23))
            power = float_of(int32((127 + e) << 23))
            st_f32(out + X_SUM * n, float32(a + c) * power)
            st_f32(out + X_SUM_A * n, float32(a) * power)
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
                    blank(out + 4 * j, blocks, float32(0.0))
                    continue
                x = ld_i64(args + _X) + i * ld_i64(args + _X_STRIDE)
                if ld_i64(args + _NORM) != 0:
                    normed = ld_i64(args + _NORMED) + i * ld_i64(args + _NORMED_STRIDE)
                    rms_norm_row(x, ld_i64(args + _NORM), ld_i64(args + _N), eps, normed)
                    x = normed
                row(x, blocks, out + 4 * j)
            t = take(counter)

    return run
