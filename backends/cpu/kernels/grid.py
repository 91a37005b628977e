"""Grids of vectors: 16*m rows of a matrix times n rows of activations, held in registers. Vector t*n + j belongs to tile t of 16 matrix
rows and to activation row j. As in tile.py, m and n are parts of the type and the loops here run while code is emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.ir import (
    F32,
    FLOATS,
    HALVES,
    I16,
    apart,
    fused,
    load,
    offset,
    pack,
    splat,
    store,
    unpack,
    widen_bfloat,
    widen_half,
)

WIDENED: dict[str, Callable[[Any, Any], Any]] = {
    "F32": lambda b, address: load(b, address, FLOATS.ll),
    "F16": lambda b, address: widen_half(b, load(b, address, HALVES.ll)),
    "BF16": lambda b, address: widen_bfloat(b, load(b, address, ir.VectorType(I16, 16))),
}
"""Loads of 16 values as float32."""


def _places(b: Any, m: int, base: Any, stride: Any, count: int) -> list[Any]:
    """Addresses of 16 floats for each vector of a grid: tiles side by side, rows a stride apart."""
    n = count // m
    rows = [apart(b, base, stride, j) for j in range(n)]
    return [offset(b, rows[j], 64 * t) for t in range(m) for j in range(n)]


def grid_fma(kind: str, m: int) -> Any:
    """An intrinsic (acc, w, gap, x, x_stride): vector (t, j) += the 16 values of that format at w + t*gap, times the float at
    x + j*x_stride."""
    widened = WIDENED[kind]

    @intrinsic
    def f(typing: Any, acc: Any, w: Any, gap: Any, x: Any, x_stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            n, old = acc.count // m, unpack(b, args[0])
            weights = [widened(b, apart(b, args[1], args[2], t)) for t in range(m)]
            columns = [splat(b, load(b, apart(b, args[3], args[4], j), F32), 16) for j in range(n)]
            new = {(t, j): fused(b, weights[t], columns[j], old[t * n + j]) for j in range(n) for t in range(m)}
            return pack(b, [new[t, j] for t in range(m) for j in range(n)])

        return acc(acc, *[types.int64] * 4), generate

    return f


def grid_load(m: int, n: int) -> Any:
    """An intrinsic (address, stride): a grid, from 16 floats at address + j*stride + 64*t."""

    @intrinsic
    def f(typing: Any, p: Any, stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            return pack(b, [load(b, place, FLOATS.ll) for place in _places(b, m, args[0], args[1], m * n)])

        return types.UniTuple(FLOATS, m * n)(types.int64, types.int64), generate

    return f


def grid_store(m: int) -> Any:
    """An intrinsic (acc, address, stride): a grid to where ``grid_load`` reads."""

    @intrinsic
    def f(typing: Any, acc: Any, p: Any, stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            for value, place in zip(unpack(b, args[0]), _places(b, m, args[1], args[2], acc.count), strict=True):
                store(b, value, place)
            return context.get_dummy_value()

        return types.none(acc, types.int64, types.int64), generate

    return f


def grid_plus(m: int) -> Any:
    """An intrinsic (acc, init, init_stride, out, out_stride): a grid plus that at ``init`` to ``out``."""

    @intrinsic
    def f(typing: Any, acc: Any, init: Any, init_stride: Any, out: Any, out_stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            starts = _places(b, m, args[1], args[2], acc.count)
            for value, start, place in zip(unpack(b, args[0]), starts, _places(b, m, args[3], args[4], acc.count), strict=True):
                store(b, b.fadd(value, load(b, start, FLOATS.ll)), place)
            return context.get_dummy_value()

        return types.none(acc, *[types.int64] * 4), generate

    return f
