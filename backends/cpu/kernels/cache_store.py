"""How a head gets into the cache, for every type that ``kv_types.py`` describes, and the quantised form of a query."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import float32, float64, int32, types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import F32, FLOATS, I32, constant, fused, narrow_half, shuffle, splat, store
from localllm.backends.cpu.kernels.maths import root
from localllm.backends.cpu.kernels.parts import ld_part, scatter_h
from localllm.backends.cpu.kernels.vec import (
    fma,
    hmax,
    hsum,
    hsum_i,
    ld_f,
    scatter4,
    shl,
    sp_f,
    sp_i,
    st_b16,
    st_f,
    st_f32,
    st_h,
    st_i32,
    to_b16,
    to_i,
    unary,
    vabs,
    vmax,
    vmin,
    vround,
)
from localllm.backends.cpu.kv_types import QUANTISED
from localllm.backends.cpu.records import TILE

_SMALLEST, _FINITE = float32(1e-30), float32(3.4028234e38)


@intrinsic
def _st_half(typing: Any, address: Any, value: Any) -> Any:
    """One float, narrowed to a half."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        store(b, b.extract_element(narrow_half(b, splat(b, args[1], 16)), ir.Constant(I32, 0)), args[0])
        return context.get_dummy_value()

    return types.none(types.int64, types.float32), generate


@intrinsic
def _scatter_f(typing: Any, address: Any, stride: Any, v: Any) -> Any:
    """16 floats, each to address + i*stride."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        for i in range(16):
            store(b, b.extract_element(args[2], ir.Constant(I32, i)), b.add(args[0], b.mul(args[1], ir.Constant(args[1].type, i))))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, FLOATS), generate


# ---- quantising


@helper
def _finite(x0: Any, x1: Any) -> Any:
    """0, or NaN where a value is not finite."""
    zero = sp_f(float32(0.0))
    return hsum(fma(x0, zero, x1 * zero))


@helper
def _scale8(x0: Any, x1: Any) -> Any:
    """The step of 32 values, and what they are multiplied with."""
    largest = hmax(vmax(vabs(x0), vabs(x1))) + _finite(x0, x1)
    if not (largest >= _SMALLEST and largest <= _FINITE):
        return largest * float32(0.0), float32(0.0)
    return largest * float32(1.0 / 127.0), float32(127.0) / largest


@helper
def _codes8(x: Any, factor: float) -> Any:
    """Codes of 16 values; something in range also for what is not finite."""
    return to_i(vround(vmin(vmax(x * sp_f(factor), sp_f(float32(-127.0))), sp_f(float32(127.0)))))


@helper
def _scale4(x0: Any, x1: Any) -> Any:
    """The same for codes of 4 bits."""
    zero = sp_f(float32(0.0))
    doubt = _finite(x0, x1)
    high, low = hmax(vmax(x0, x1)) + doubt, hmax(vmax(zero - x0, zero - x1)) + doubt
    largest = high if high >= low else low
    if not (largest >= _SMALLEST and largest <= _FINITE):
        return largest * float32(0.0), float32(0.0)
    if high >= low:
        return high * float32(-0.125), float32(-8.0) / high
    return low * float32(0.125), float32(8.0) / low


@helper
def _codes4(x0: Any, x1: Any, factor: float) -> Any:
    """32 codes + 8 in 16 bytes: the first 16 in their low halves."""
    half, most, least = sp_f(float32(8.5)), sp_f(float32(15.0)), sp_f(float32(0.0))
    q0 = to_i(vmin(vmax(fma(x0, sp_f(factor), half), least), most))
    q1 = to_i(vmin(vmax(fma(x1, sp_f(factor), half), least), most))
    return to_b16(q0 + shl(q1, 4))


# ---- rotation


def _swapper(step: int) -> Any:
    """An intrinsic: lanes i and i ^ step become their sum and their difference."""
    signs = [-1 if i & step else 1 for i in range(16)]

    def emit(b: Any, x: Any) -> Any:
        return fused(b, x, constant(ir.VectorType(F32, 16), signs), shuffle(b, x, x, [i ^ step for i in range(16)]))

    return unary(FLOATS, FLOATS, emit)


_swap1, _swap2, _swap4, _swap8 = (_swapper(step) for step in (1, 2, 4, 8))


@helper
def rotate(x: int, d: int) -> None:
    """d floats, in place, times an orthogonal matrix: Hadamard's, of the largest power of two that divides d; 16 at least, or nothing is
    done. It spreads what is large in one value over many, so that the steps of all others get smaller."""
    n = d & -d
    if n >= 16:
        factor = sp_f(float32(1.0 / root(float64(n))))
        for i in range(0, 4 * d, 64):
            st_f(x + i, _swap8(_swap4(_swap2(_swap1(ld_f(x + i))))) * factor)
        step = 64
        while step < 4 * n:
            for first in range(0, 4 * d, 2 * step):
                for i in range(x + first, x + first + step, 64):
                    a, b = ld_f(i), ld_f(i + step)
                    st_f(i, a + b)
                    st_f(i + step, a - b)
            step *= 2


@helper
def _no_rotation(x: int, d: int) -> None:
    pass


def rotator(k: str) -> Any:
    """(x, d): what is done to queries and keys before they are stored."""
    return rotate if k in QUANTISED else _no_rotation


# ---- storing


def key_storer(kind: str) -> Any:
    """(k, wide, keys, at): a head's ``wide`` floats, zeros at their end, to place ``at`` of the keys of a page."""
    if kind == "f16":

        @helper
        def put(k: int, wide: int, keys: int, at: int) -> None:
            to = keys + at // 16 * (32 * wide) + at % 16 * 2
            for i in range(0, wide, 16):
                scatter_h(to + 32 * i, 32, ld_f(k + 4 * i))

    elif kind == "f32":

        @helper
        def put(k: int, wide: int, keys: int, at: int) -> None:
            to = keys + at // 16 * (64 * wide) + at % 16 * 4
            for i in range(0, wide, 16):
                _scatter_f(to + 64 * i, 64, ld_f(k + 4 * i))

    elif kind == "q8_0":

        @helper
        def put(k: int, wide: int, keys: int, at: int) -> None:
            to = keys + at // 16 * (16 * wide) + at % 16 * 4
            steps = keys + TILE * wide + at // 16 * wide + at % 16 * 2
            for i in range(0, wide, 32):
                x0, x1 = ld_f(k + 4 * i), ld_f(k + 4 * i + 64)
                step, factor = _scale8(x0, x1)
                scatter4(to + 16 * i, 64, to_b16(_codes8(x0, factor) + sp_i(int32(128))))
                scatter4(to + 16 * i + 256, 64, to_b16(_codes8(x1, factor) + sp_i(int32(128))))
                _st_half(steps + i, step)

    else:

        @helper
        def put(k: int, wide: int, keys: int, at: int) -> None:
            to = keys + at // 16 * (8 * wide) + at % 16 * 4
            steps = keys + TILE * wide // 2 + at // 16 * wide + at % 16 * 2
            for i in range(0, wide, 32):
                x0, x1 = ld_f(k + 4 * i), ld_f(k + 4 * i + 64)
                step, factor = _scale4(x0, x1)
                scatter4(to + 8 * i, 64, _codes4(x0, x1, factor))
                _st_half(steps + i, step)

    return put


def value_storer(kind: str) -> Any:
    """(v, d, wide, values, at): a head's d floats to place ``at`` of the values of a page."""
    if kind == "f16":

        @helper
        def put(v: int, d: int, wide: int, values: int, at: int) -> None:
            for i in range(0, wide, 16):
                st_h(values + at * (2 * wide) + 2 * i, ld_part(v + 4 * i, d - i))

    elif kind == "f32":

        @helper
        def put(v: int, d: int, wide: int, values: int, at: int) -> None:
            for i in range(0, wide, 16):
                st_f(values + at * (4 * wide) + 4 * i, ld_part(v + 4 * i, d - i))

    elif kind == "q8_0":

        @helper
        def put(v: int, d: int, wide: int, values: int, at: int) -> None:
            to, steps = values + at * wide, values + TILE * wide + at * (wide // 16)
            for i in range(0, wide, 32):
                x0, x1 = ld_part(v + 4 * i, d - i), ld_part(v + 4 * i + 64, d - i - 16)
                step, factor = _scale8(x0, x1)
                st_b16(to + i, to_b16(_codes8(x0, factor)))
                st_b16(to + i + 16, to_b16(_codes8(x1, factor)))
                _st_half(steps + i // 16, step)

    else:

        @helper
        def put(v: int, d: int, wide: int, values: int, at: int) -> None:
            to, steps = values + at * (wide // 2), values + TILE * wide // 2 + at * (wide // 16)
            for i in range(0, wide, 32):
                x0, x1 = ld_part(v + 4 * i, d - i), ld_part(v + 4 * i + 64, d - i - 16)
                step, factor = _scale4(x0, x1)
                st_b16(to + i // 2, _codes4(x0, x1, factor))
                _st_half(steps + i // 16, step)

    return put


def query_storer(kind: str) -> Any:
    """(x, wide, to): a query's quantised form, for keys of that type; None where keys are floats."""
    if kind not in QUANTISED:
        return None
    added = int32(-128 if kind == "q8_0" else -8)

    @helper
    def put(x: int, wide: int, to: int) -> None:
        for i in range(0, wide, 32):
            x0, x1 = ld_f(x + 4 * i), ld_f(x + 4 * i + 64)
            step, factor = _scale8(x0, x1)
            q0, q1 = _codes8(x0, factor), _codes8(x1, factor)
            st_b16(to + i, to_b16(q0))
            st_b16(to + i + 16, to_b16(q1))
            st_f32(to + wide + i // 8, step)
            st_i32(to + wide + wide // 8 + i // 8, added * (hsum_i(q0) + hsum_i(q1)))

    return put
