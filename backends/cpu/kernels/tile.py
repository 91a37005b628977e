"""Tiles: N vectors at once, one for each column. N is part of the type (UniTuple), so the loops here run while code is emitted and LLVM
keeps every element in a register."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.ir import (
    F32,
    FLOATS,
    I8,
    I32,
    I64,
    INTS,
    apart,
    call,
    constant,
    fused,
    load,
    offset,
    pack,
    splat,
    store,
    unpack,
)


def zeros(kind: Any, n: int) -> Any:
    """An intrinsic without arguments: a tile of n zero vectors."""

    @intrinsic
    def f(typing: Any) -> Any:
        zero = ir.Constant(kind.ll, [0.0 if kind.floating else 0] * kind.n)
        return types.UniTuple(kind, n)(), lambda context, b, sig, args: pack(b, [zero] * n)

    return f


def loader(kind: Any, n: int) -> Any:
    """An intrinsic (address, stride): n vectors."""

    @intrinsic
    def f(typing: Any, p: Any, stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            return pack(b, [load(b, apart(b, args[0], args[1], j), kind.ll) for j in range(n)])

        return types.UniTuple(kind, n)(types.int64, types.int64), generate

    return f


def broadcaster(n: int, doublings: int = 0) -> Any:
    """An intrinsic (address): n vectors of int32, each one number at address + 4*j, times 2^doublings, in every lane."""

    @intrinsic
    def f(typing: Any, p: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            out = [splat(b, load(b, offset(b, args[0], 4 * j), I32), 16) for j in range(n)]
            return pack(b, [b.shl(v, constant(INTS.ll, doublings)) if doublings else v for v in out])

        return types.UniTuple(INTS, n)(types.int64), generate

    return f


def half_of(which: int) -> Any:
    """An intrinsic (tile): its first (0) or last (1) half."""

    @intrinsic
    def f(typing: Any, tile: Any) -> Any:
        n = tile.count // 2
        kind = types.UniTuple(tile.dtype, n)
        return kind(tile), lambda context, b, sig, args: pack(b, unpack(b, args[0])[which * n : which * n + n])

    return f


@intrinsic
def joined(typing: Any, low: Any, high: Any) -> Any:
    """The tile that these are the halves of."""
    kind = types.UniTuple(low.dtype, low.count + high.count)
    return kind(low, high), lambda context, b, sig, args: pack(b, unpack(b, args[0]) + unpack(b, args[1]))


@intrinsic
def tile_store(typing: Any, p: Any, stride: Any, tile: Any) -> Any:
    """Every vector to p + j*stride."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        for j, value in enumerate(unpack(b, args[2])):
            store(b, value, apart(b, args[0], args[1], j))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, tile), generate


@intrinsic
def tile_fma(typing: Any, acc: Any, v: Any, p: Any, stride: Any) -> Any:
    """acc[j] = v * (the float at p + j*stride) + acc[j]."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        out = []
        for j, a in enumerate(unpack(b, args[0])):
            x = splat(b, load(b, apart(b, args[2], args[3], j), F32), 16)
            out.append(fused(b, args[1], x, a))
        return pack(b, out)

    return acc(acc, v, types.int64, types.int64), generate


@intrinsic
def tile_scaled(typing: Any, acc: Any, dot: Any, d: Any, p: Any) -> Any:
    """acc[j] = (float(dot[j]) * the float at p + 4*j) * d + acc[j]."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        out = []
        for j, (a, v) in enumerate(zip(unpack(b, args[0]), unpack(b, args[1]), strict=True)):
            step = splat(b, load(b, offset(b, args[3], 4 * j), F32), 16)
            out.append(fused(b, b.fmul(b.sitofp(v, FLOATS.ll), step), args[2], a))
        return pack(b, out)

    return acc(acc, dot, d, types.int64), generate


@intrinsic
def tile_plus(typing: Any, acc: Any, init: Any, init_stride: Any, out: Any, out_stride: Any) -> Any:
    """out[j] = acc[j] + init[j], 16 floats at out + j*out_stride."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        for j, a in enumerate(unpack(b, args[0])):
            start = load(b, apart(b, args[1], args[2], j), FLOATS.ll)
            store(b, b.fadd(a, start), apart(b, args[3], args[4], j))
        return context.get_dummy_value()

    return types.none(acc, *[types.int64] * 4), generate


def prefetcher(lines: int) -> Any:
    """An intrinsic (address): asks for so many cache lines from there on. Addresses need not exist."""

    @intrinsic
    def f(typing: Any, p: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            for i in range(lines):
                line = b.inttoptr(offset(b, args[0], 64 * i), I8.as_pointer())
                read, everywhere, data = (ir.Constant(I32, n) for n in (0, 3, 1))
                call(b, "llvm.prefetch.p0", ir.VoidType(), [line, read, everywhere, data])
            return context.get_dummy_value()

        return types.none(types.int64), generate

    return f


@intrinsic
def stack(typing: Any, size: Any) -> Any:
    """Address of a literal number of bytes in the stack frame, aligned to 64."""
    if not isinstance(size, types.IntegerLiteral):
        return None

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        p = cgutils.alloca_once(b, ir.ArrayType(I8, size.literal_value))
        p.align = 64
        return b.ptrtoint(p, I64)

    return types.int64(size), generate
