"""Dot products of bytes: the part that depends on the instruction set. All are exact integers, so every target gives the same sums."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from localllm.backends.cpu.kernels.ir import BYTES, I8, I16, I32, INTS, TARGET, call, constant, halves, shuffle

_V8I32, _V16I16, _V32I8 = ir.VectorType(I32, 8), ir.VectorType(I16, 16), ir.VectorType(I8, 32)
_V4I32, _V16I8 = ir.VectorType(I32, 4), ir.VectorType(I8, 16)


def dot4(b: Any, acc: Any, u: Any, s: Any, wide: bool = False) -> Any:
    """acc (16 int32) + the sums of 4 neighbours of u (64 unsigned bytes) * s (64 signed bytes). ``wide``: u may exceed 127."""
    if TARGET.vnni512:
        return call(b, "llvm.x86.avx512.vpdpbusd.512", INTS.ll, [acc, b.bitcast(u, INTS.ll), b.bitcast(s, INTS.ll)])
    u, s = b.bitcast(u, BYTES.ll), b.bitcast(s, BYTES.ll)
    if TARGET.vnni256 or TARGET.avx2:
        part = _dot_vnni256 if TARGET.vnni256 else (_dot_avx2_wide if wide else _dot_avx2)
        return _in_halves(b, acc, u, s, part)
    if TARGET.neon:
        return _dot_neon(b, acc, u, s, wide)
    return _dot_plain(b, acc, u, s)


def _in_halves(b: Any, acc: Any, u: Any, s: Any, part: Any) -> Any:
    low, high = (part(b, *x) for x in zip(halves(b, acc), halves(b, u), halves(b, s), strict=True))
    return shuffle(b, low, high, range(16))


def _dot_vnni256(b: Any, acc: Any, u: Any, s: Any) -> Any:
    return call(b, "llvm.x86.avx512.vpdpbusd.256", _V8I32, [acc, b.bitcast(u, _V8I32), b.bitcast(s, _V8I32)])


def _dot_avx2(b: Any, acc: Any, u: Any, s: Any) -> Any:
    pairs = call(b, "llvm.x86.avx2.pmadd.ub.sw", _V16I16, [u, s])
    return b.add(acc, call(b, "llvm.x86.avx2.pmadd.wd", _V8I32, [pairs, constant(_V16I16, 1)]))


def _dot_avx2_wide(b: Any, acc: Any, u: Any, s: Any) -> Any:
    # The sum of two products of bytes above 127 would saturate at 16 bits: even and odd bytes apart.
    for mask in ([255, 0], [0, 255]):
        acc = _dot_avx2(b, acc, b.and_(u, constant(_V32I8, mask * 16)), s)
    return acc


def _dot_neon(b: Any, acc: Any, u: Any, s: Any, wide: bool) -> Any:
    out = []
    for q in range(4):
        a, x, y = (shuffle(b, v, v, range(q * n, q * n + n)) for v, n in ((acc, 4), (u, 16), (s, 16)))
        if wide:  # both operands are signed here: u = (u - 128) + 127 + 1
            for k in (127, 1):
                a = _sdot(b, a, constant(_V16I8, k), y)
            x = b.xor(x, constant(_V16I8, -128))
        out.append(_sdot(b, a, x, y))
    low, high = (shuffle(b, out[i], out[i + 1], range(8)) for i in (0, 2))
    return shuffle(b, low, high, range(16))


def _sdot(b: Any, a: Any, x: Any, y: Any) -> Any:
    return call(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", _V4I32, [a, x, y])


def _dot_plain(b: Any, acc: Any, u: Any, s: Any) -> Any:
    words = ir.VectorType(I32, 64)
    products = b.mul(b.zext(u, words), b.sext(s, words))
    for k in range(4):
        acc = b.add(acc, shuffle(b, products, products, range(k, 64, 4)))
    return acc


def lookup(b: Any, table: list[int], index: Any) -> Any:
    """Bytes of a table of 16, by 64 indices of 0..15."""
    if TARGET.vnni512:
        return call(b, "llvm.x86.avx512.pshuf.b.512", BYTES.ll, [constant(BYTES.ll, table * 4), index])
    if TARGET.avx2:
        parts = [call(b, "llvm.x86.avx2.pshuf.b", _V32I8, [constant(_V32I8, table * 2), half]) for half in halves(b, index)]
        return shuffle(b, parts[0], parts[1], range(64))
    if TARGET.neon:
        quarters = [shuffle(b, index, index, range(16 * q, 16 * q + 16)) for q in range(4)]
        found = [call(b, "llvm.aarch64.neon.tbl1.v16i8", _V16I8, [constant(_V16I8, table), q]) for q in quarters]
        low, high = (shuffle(b, found[i], found[i + 1], range(32)) for i in (0, 2))
        return shuffle(b, low, high, range(64))
    return _lookup_plain(b, table, index)


def _lookup_plain(b: Any, table: list[int], index: Any) -> Any:
    # A select for each entry: no gather of bytes exists, and lane by lane would be 64 loads.
    out = constant(BYTES.ll, table[0])
    for i, value in enumerate(table[1:], 1):
        out = b.select(b.icmp_unsigned("==", index, constant(BYTES.ll, i)), constant(BYTES.ll, value), out)
    return out
