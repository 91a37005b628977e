"""Small helpers for emitting LLVM vector code, and the vector type itself.

``Vec(elem, n)`` is a Numba type whose values are LLVM vectors <n x elem>. They live in ordinary variables of jitted functions and LLVM
keeps them in registers; 512-bit ones are split by LLVM where the processor has shorter registers. Memory is named by integer addresses.
No instruction carries a fast-math flag: every fused multiply-add is written as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel
from numba.core.extending import register_model

from localllm.backends.cpu.target import current, features, processor

TARGET = current()
ZEN = processor(TARGET).startswith("znver")
AHEAD = 0 if ZEN or not TARGET.avx2 else 4096
"""Bytes that a stream of weights is fetched ahead of its use. Measured: decoding is 1.4 times as fast on Intel's Sapphire Rapids, anything
from 3 to 6 KiB alike; AMD's Zen 4 does that best itself (load_in_order)."""
BYTE_TABLES = TARGET.vnni512 and "+avx512vbmi" in features(TARGET).split(",")
"""Whether one instruction looks up 64 bytes in a table of 64."""
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
_ELEMENTS: dict[str, tuple[Any, int, Any]] = {
    "i8": (I8, 8, types.int8),
    "i16": (I16, 16, types.int16),
    "i32": (I32, 32, types.int32),
    "f32": (F32, 32, types.float32),
    "f16": (F16, 16, None),
}


class Vec(types.Type):
    """Numba type of an LLVM vector of ``n`` elements: i8, i16, i32, f16 or f32."""

    def __init__(self, elem: str, n: int) -> None:
        self.elem, self.n = elem, n
        super().__init__(f"v{n}{elem}")

    @property
    def ll(self) -> Any:
        """The LLVM type."""
        return ir.VectorType(_ELEMENTS[self.elem][0], self.n)

    @property
    def scalar(self) -> Any:
        """The Numba type of one element."""
        return _ELEMENTS[self.elem][2]

    @property
    def bits(self) -> int:
        """Width of the whole vector."""
        return _ELEMENTS[self.elem][1] * self.n

    @property
    def floating(self) -> bool:
        """Whether the elements are floats."""
        return self.elem[0] == "f"


@register_model(Vec)
class _VecModel(PrimitiveModel):
    def __init__(self, manager: Any, vec: Vec) -> None:
        super().__init__(manager, vec, vec.ll)


BYTES, BYTES16 = Vec("i8", 64), Vec("i8", 16)
HALVES, INTS, FLOATS = Vec("f16", 16), Vec("i32", 16), Vec("f32", 16)
SHORTS16 = Vec("i16", 16)


def pointer(b: Any, address: Any, element: Any) -> Any:
    """An address as a pointer to ``element``."""
    return b.inttoptr(address, element.as_pointer())


def offset(b: Any, address: Any, n: int | Any) -> Any:
    """address + n, n a Python integer or a value."""
    if isinstance(n, int):
        return b.add(address, ir.Constant(I64, n)) if n else address
    return b.add(address, n)


def apart(b: Any, address: Any, stride: Any, j: int) -> Any:
    """address + j*stride."""
    return offset(b, address, b.mul(stride, ir.Constant(I64, j)))


def load(b: Any, address: Any, element: Any) -> Any:
    """An unaligned load."""
    return b.load(pointer(b, address, element), align=1)


class _InOrder(ir.LoadInstr):
    """A volatile load, which llvmlite has no word for."""

    def descr(self, buf: list[str]) -> None:
        """The text of the instruction."""
        super().descr(buf)
        buf[-1] = buf[-1].replace("load ", "load volatile ", 1)


def load_in_order(b: Any, address: Any, element: Any) -> Any:
    """An unaligned load that LLVM leaves behind all such loads before it; others it moves to where registers suit it. Where a processor
    fetches ahead by itself (Zen 4), it does so for lines that are asked for one behind the other: decoding is up to three times as fast."""
    value = _InOrder(b.block, pointer(b, address, element), typ=element)
    value.align = 1
    b._insert(value)
    return value


def store(b: Any, value: Any, address: Any) -> None:
    """An unaligned store."""
    b.store(value, pointer(b, address, value.type), align=1)


def splat(b: Any, value: Any, n: int) -> Any:
    """A scalar in every lane."""
    undefined = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    first = b.insert_element(undefined, value, ir.Constant(I32, 0))
    return b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, n), [0] * n))


def constant(vector: Any, value: int | float | Sequence[int]) -> Any:
    """An LLVM vector constant: one value in every lane, or the lanes."""
    lanes = list(value) if isinstance(value, Sequence) else [value] * vector.count
    return ir.Constant(vector, lanes)


def shuffle(b: Any, x: Any, y: Any, lanes: Iterable[int]) -> Any:
    """Lanes of x (0..n-1) and y (n..)."""
    index = list(lanes)
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(index)), index))


def halves(b: Any, x: Any) -> tuple[Any, Any]:
    """The lower and the upper half of a vector."""
    n = x.type.count
    return shuffle(b, x, x, range(n // 2)), shuffle(b, x, x, range(n // 2, n))


def call(b: Any, name: str, result: Any, args: Sequence[Any]) -> Any:
    """Call an external function or an LLVM intrinsic by name."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), args)


def shift(b: Any, x: Any, bits: int) -> Any:
    """Bytes shifted left (bits > 0) or right, through 16-bit lanes: mask the result."""
    if bits == 0:
        return x
    words = ir.VectorType(I16, x.type.count // 2)
    moved = (b.shl if bits > 0 else b.lshr)(b.bitcast(x, words), constant(words, abs(bits)))
    return b.bitcast(moved, x.type)


def fused(b: Any, x: Any, y: Any, z: Any) -> Any:
    """x*y + z for floats, in one rounding where the target has it (and in two, always, where it has not)."""
    if not TARGET.fma:
        return b.fadd(b.fmul(x, y), z)
    suffix = f"v{x.type.count}f32" if isinstance(x.type, ir.VectorType) else "f32"
    return call(b, f"llvm.fma.{suffix}", x.type, [x, y, z])


def widen_bfloat(b: Any, x: Any) -> Any:
    """<n x i16>, the bits of bfloat16, to float."""
    n = x.type.count
    words = ir.VectorType(I32, n)
    return b.bitcast(b.shl(b.zext(x, words), constant(words, 16)), ir.VectorType(F32, n))


def widen_half(b: Any, h: Any) -> Any:
    """<n x half> or half to float."""
    many = isinstance(h.type, ir.VectorType)

    def wrap(kind: Any) -> Any:
        return ir.VectorType(kind, h.type.count) if many else kind

    def const(kind: Any, value: int | float) -> Any:
        return ir.Constant(wrap(kind), [value] * h.type.count if many else value)

    if TARGET.half:
        return b.fpext(h, wrap(F32))
    # Without the instruction LLVM would call a library function that may not exist: move the bits and scale by 2^112, which is exact for
    # finite values, subnormals too; an exponent of all ones (infinity, NaN) is set by hand.
    w = b.zext(b.bitcast(h, wrap(I16)), wrap(I32))
    bits = b.shl(b.and_(w, const(I32, 0x7FFF)), const(I32, 13))
    scaled = b.bitcast(b.fmul(b.bitcast(bits, wrap(F32)), const(F32, float(2**112))), wrap(I32))
    special = b.icmp_unsigned(">=", bits, const(I32, 0x7C00 << 13))
    magnitude = b.select(special, b.or_(bits, const(I32, 0x7F800000)), scaled)
    sign = b.shl(b.and_(w, const(I32, 0x8000)), const(I32, 16))
    return b.bitcast(b.or_(magnitude, sign), wrap(F32))


def narrow_half(b: Any, x: Any) -> Any:
    """<n x float> to <n x half>, to nearest even."""
    half = ir.VectorType(F16, x.type.count)
    if TARGET.half:
        return b.fptrunc(x, half)
    n = x.type.count
    ints, floats = ir.VectorType(I32, n), ir.VectorType(F32, n)
    raw = b.bitcast(x, ints)
    sign = b.lshr(b.and_(raw, constant(ints, -0x80000000)), constant(ints, 16))
    bits = b.and_(raw, constant(ints, 0x7FFFFFFF))
    odd = b.and_(b.lshr(bits, constant(ints, 13)), constant(ints, 1))
    normal = b.lshr(b.add(b.add(bits, constant(ints, 0xFFF - (112 << 23))), odd), constant(ints, 13))
    # Below 2^-14: adding 0.5 makes the float unit round at the bit where a subnormal half ends.
    small = b.sub(b.bitcast(b.fadd(b.bitcast(bits, floats), constant(floats, 0.5)), ints), constant(ints, 0x3F000000))
    result = b.select(b.icmp_unsigned("<", bits, constant(ints, 0x38800000)), small, normal)
    result = b.select(b.icmp_unsigned(">=", bits, constant(ints, 0x477FF000)), constant(ints, 0x7C00), result)
    result = b.select(b.icmp_unsigned(">", bits, constant(ints, 0x7F800000)), constant(ints, 0x7E00), result)
    return b.bitcast(b.trunc(b.or_(result, sign), ir.VectorType(I16, n)), half)


def pack(b: Any, values: Sequence[Any]) -> Any:
    """LLVM values as a Numba UniTuple."""
    t = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        t = b.insert_value(t, value, i)
    return t


def unpack(b: Any, tile: Any) -> list[Any]:
    """A Numba UniTuple as LLVM values."""
    return [b.extract_value(tile, i) for i in range(tile.type.count)]
