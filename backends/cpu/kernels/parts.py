"""Vectors of which only some lanes count, for widths that are not multiples of 16, and single lanes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import float32, types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import FLOATS, I32, I64, SHORTS16, narrow_half, offset, store
from localllm.backends.cpu.kernels.vec import ld_f, ld_f32, sp_f, st_f, st_f32


@intrinsic
def lane(typing: Any, v: Any, i: Any) -> Any:
    """Lane i of a vector of floats."""
    return types.float32(FLOATS, types.int64), lambda context, b, sig, args: b.extract_element(*args)


@intrinsic
def with_lane(typing: Any, v: Any, i: Any, x: Any) -> Any:
    """The vector with x in lane i."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.insert_element(args[0], args[2], args[1])

    return FLOATS(FLOATS, types.int64, types.float32), generate


@intrinsic
def where_less(typing: Any, a: Any, c: Any, x: Any, y: Any) -> Any:
    """Lanes of x where a < c, of y elsewhere, also where one of a and c is NaN."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.select(b.fcmp_ordered("<", args[0], args[1]), args[2], args[3])

    return FLOATS(FLOATS, FLOATS, FLOATS, FLOATS), generate


@intrinsic
def scatter_h(typing: Any, address: Any, stride: Any, v: Any) -> Any:
    """16 floats as halves, each to address + i*stride."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        words = b.bitcast(narrow_half(b, args[2]), SHORTS16.ll)
        for i in range(16):
            at = offset(b, args[0], b.mul(args[1], ir.Constant(I64, i)))
            store(b, b.extract_element(words, ir.Constant(I32, i)), at)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, FLOATS), generate


@helper
def ld_part(address: int, n: int) -> Any:
    """The first n of 16 floats, zeros for the rest; nothing beyond them is touched."""
    if n >= 16:
        return ld_f(address)
    v = sp_f(float32(0.0))
    for i in range(n):
        v = with_lane(v, i, ld_f32(address + 4 * i))
    return v


@helper
def st_part(address: int, v: Any, n: int) -> None:
    """The first n of 16 floats; nothing beyond them is touched."""
    if n >= 16:
        st_f(address, v)
        return
    for i in range(n):
        st_f32(address + 4 * i, lane(v, i))
