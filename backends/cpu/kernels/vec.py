"""What kernels can say: vector operators, loads, stores, conversions and reductions, as Numba intrinsics.

``ld_*``/``st_*`` take addresses. Names: ``f`` 16 float32, ``i`` 16 int32, ``h`` 16 float16, ``b`` 64 bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic, lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature

from localllm.backends.cpu.kernels.ir import (
    BYTES,
    BYTES16,
    F32,
    FLOATS,
    HALVES,
    I8,
    I16,
    I32,
    I64,
    INTS,
    Vec,
    call,
    constant,
    fused,
    halves,
    load,
    narrow_half,
    offset,
    shuffle,
    splat,
    store,
    widen_bfloat,
    widen_half,
)

# ---- operators


def _operator(op: Any, integer: str | None, floating: str | None) -> None:
    @infer_global(op)
    class _Typer(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], Vec) and args[0] == args[1]:
                return signature(args[0], *args) if (floating if args[0].floating else integer) else None
            return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, str(floating if sig.args[0].floating else integer))(*args)

    lower_builtin(op, Vec, Vec)(lower)


for _op, _int, _float in (
    (operator.add, "add", "fadd"),
    (operator.sub, "sub", "fsub"),
    (operator.mul, "mul", "fmul"),
    (operator.truediv, None, "fdiv"),
    (operator.and_, "and_", None),
    (operator.or_, "or_", None),
    (operator.xor, "xor", None),
):
    _operator(_op, _int, _float)


def unary(takes: Vec, gives: Any, emit: Callable[[Any, Any], Any]) -> Any:
    """An intrinsic of one vector."""

    @intrinsic
    def f(typing: Any, x: Any) -> Any:
        return gives(takes), lambda context, b, sig, args: emit(b, args[0])

    return f


def binary(kind: Vec, emit: Callable[[Any, Any, Any], Any]) -> Any:
    """An intrinsic of two vectors of one kind."""

    @intrinsic
    def f(typing: Any, x: Any, y: Any) -> Any:
        return kind(kind, kind), lambda context, b, sig, args: emit(b, *args)

    return f


# ---- memory


def _loader(gives: Any, emit: Callable[[Any, Any], Any]) -> Any:
    @intrinsic
    def f(typing: Any, address: Any) -> Any:
        return gives(types.int64), lambda context, b, sig, args: emit(b, args[0])

    return f


def storer(kind: Vec) -> Any:
    """An intrinsic (address, value) that stores a vector of that kind."""
    return _storer(kind, store)


def _storer(takes: Any, emit: Callable[[Any, Any, Any], Any]) -> Any:
    @intrinsic
    def f(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            emit(b, args[1], args[0])
            return context.get_dummy_value()

        return types.none(types.int64, takes), generate

    return f


ld_f = _loader(FLOATS, lambda b, a: load(b, a, FLOATS.ll))
ld_i = _loader(INTS, lambda b, a: load(b, a, INTS.ll))
ld_b16 = _loader(BYTES16, lambda b, a: load(b, a, BYTES16.ll))
ld_h = _loader(FLOATS, lambda b, a: widen_half(b, load(b, a, HALVES.ll)))
"""16 halves, widened."""
ld_bf = _loader(FLOATS, lambda b, a: widen_bfloat(b, load(b, a, ir.VectorType(I16, 16))))
"""16 bfloat16, widened."""
ld_e4m3 = _loader(FLOATS, lambda b, a: widen_half(b, _half_of_e4m3(b, load(b, a, BYTES16.ll))))
"""16 floats of 7 bits, E4M3 without sign or NaN, widened and times 2^-8."""
bc_f = _loader(FLOATS, lambda b, a: splat(b, load(b, a, F32), 16))
"""One float in every lane."""
ld_f32 = _loader(types.float32, lambda b, a: load(b, a, F32))
ld_i32 = _loader(types.int64, lambda b, a: b.sext(load(b, a, I32), I64))
ld_i64 = _loader(types.int64, lambda b, a: load(b, a, I64))
ld_u8 = _loader(types.int64, lambda b, a: b.zext(load(b, a, I8), I64))
st_f = _storer(FLOATS, store)
st_i = _storer(INTS, store)
st_b16 = _storer(BYTES16, store)
st_b = _storer(BYTES, store)
st_h = _storer(FLOATS, lambda b, v, a: store(b, narrow_half(b, v), a))
"""16 floats, narrowed to halves."""
st_f32 = _storer(types.float32, store)
st_i32 = _storer(types.int32, store)
st_i64 = _storer(types.int64, store)


def _half_of_e4m3(b: Any, x: Any) -> Any:
    shorts = ir.VectorType(I16, 16)
    return b.bitcast(b.shl(b.zext(x, shorts), constant(shorts, 7)), HALVES.ll)


@intrinsic
def scatter4(typing: Any, address: Any, stride: Any, v: Any) -> Any:
    """Four groups of 4 bytes (of 16) to address + k*stride."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        words = b.bitcast(args[2], ir.VectorType(I32, 4))
        for k in range(4):
            at = offset(b, args[0], b.mul(args[1], ir.Constant(I64, k)))
            store(b, b.extract_element(words, ir.Constant(I32, k)), at)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, BYTES16), generate


# ---- conversions and arithmetic


def _splatter(kind: Vec) -> Any:
    @intrinsic
    def f(typing: Any, x: Any) -> Any:
        return kind(kind.scalar), lambda context, b, sig, args: splat(b, args[0], kind.n)

    return f


sp_f, sp_i = _splatter(FLOATS), _splatter(INTS)
to_f = unary(INTS, FLOATS, lambda b, x: b.sitofp(x, FLOATS.ll))
to_i = unary(FLOATS, INTS, lambda b, x: b.fptosi(x, INTS.ll))
to_b16 = unary(INTS, BYTES16, lambda b, x: b.trunc(x, BYTES16.ll))
u8_to_i = unary(BYTES16, INTS, lambda b, x: b.zext(x, INTS.ll))
i8_to_i = unary(BYTES16, INTS, lambda b, x: b.sext(x, INTS.ll))
as_bytes = unary(INTS, BYTES, lambda b, x: b.bitcast(x, BYTES.ll))
as_halves = unary(INTS, HALVES, lambda b, x: b.bitcast(b.trunc(x, ir.VectorType(I16, 16)), HALVES.ll))
"""The lower 16 bits of each lane are a half's."""
bits_f = unary(INTS, FLOATS, lambda b, x: b.bitcast(x, FLOATS.ll))
vabs = unary(FLOATS, FLOATS, lambda b, x: call(b, "llvm.fabs.v16f32", FLOATS.ll, [x]))
vround = unary(FLOATS, FLOATS, lambda b, x: call(b, "llvm.rint.v16f32", FLOATS.ll, [x]))
vmax = binary(FLOATS, lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
vmin = binary(FLOATS, lambda b, x, y: b.select(b.fcmp_ordered("<", x, y), x, y))


@intrinsic
def fma(typing: Any, x: Any, y: Any, z: Any) -> Any:
    """x*y + z, vectors or scalars."""
    return x(x, x, x), lambda context, b, sig, args: fused(b, *args)


@intrinsic
def float_of(typing: Any, x: Any) -> Any:
    """The float of these bits."""
    return types.float32(types.int32), lambda context, b, sig, args: b.bitcast(args[0], F32)


def _shifter(emit: str) -> Any:
    @intrinsic
    def f(typing: Any, x: Any, bits: Any) -> Any:
        if isinstance(bits, types.IntegerLiteral):
            n = bits.literal_value
            return x(x, bits), lambda context, b, sig, args: getattr(b, emit)(args[0], constant(x.ll, n))
        return None

    return f


shl, shr = _shifter("shl"), _shifter("lshr")
"""Shift of every element by a literal number of bits."""


def _reduction(kind: Vec, step: Callable[[Any, Any, Any], Any]) -> Any:
    @intrinsic
    def f(typing: Any, x: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            value = args[0]
            while value.type.count > 1:
                value = step(b, *halves(b, value))
            return b.extract_element(value, ir.Constant(I32, 0))

        return kind.scalar(kind), generate

    return f


# Always the same tree: lane i with lane i + n/2.
hsum = _reduction(FLOATS, lambda b, x, y: b.fadd(x, y))
hmax = _reduction(FLOATS, lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
hsum_i = _reduction(INTS, lambda b, x, y: b.add(x, y))


@intrinsic
def keep_if(typing: Any, x: Any, first: Any, last: Any, other: Any) -> Any:
    """Lane i keeps x where first <= i <= last, else it is ``other``."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        lanes = ir.Constant(ir.VectorType(I64, 16), list(range(16)))
        after = b.icmp_signed(">=", lanes, splat(b, args[1], 16))
        before = b.icmp_signed("<=", lanes, splat(b, args[2], 16))
        return b.select(b.and_(after, before), args[0], splat(b, args[3], 16))

    return FLOATS(FLOATS, types.int64, types.int64, types.float32), generate


def lanes(indices: list[int]) -> Any:
    """An intrinsic that picks lanes of two vectors of floats."""

    @intrinsic
    def f(typing: Any, x: Any, y: Any) -> Any:
        return FLOATS(FLOATS, FLOATS), lambda context, b, sig, args: shuffle(b, args[0], args[1], indices)

    return f


evens, odds = lanes(list(range(0, 32, 2))), lanes(list(range(1, 32, 2)))
mix_low, mix_high = (lanes([j for i in part for j in (i, i + 16)]) for part in (range(8), range(8, 16)))
"""evens/odds split pairs, mix_low/mix_high join them again."""
