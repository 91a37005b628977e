"""16 rows side by side: the movement that packing is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.ir import BYTES16, HALVES, I16, I32, I64, INTS, constant, load, offset, pack, shuffle, splat

_LANES = list(range(0, 16, 4))


def _row(b: Any, base: Any, stride: Any, rows: Any, r: int) -> Any:
    """Address of row r, or of the last one where there are fewer; row 0 is always there."""
    last = b.sub(rows, ir.Constant(I64, 1))
    last = b.select(b.icmp_signed(">", last, ir.Constant(I64, 0)), last, ir.Constant(I64, 0))
    k = ir.Constant(I64, r)
    k = b.select(b.icmp_signed("<", k, rows), k, last)
    return offset(b, base, b.mul(k, stride))


def _pick(order: list[int]) -> list[int]:
    """Lanes of a shuffle of two vectors of 16 that does the same within each four."""
    return [i % 4 + group + 16 * (i // 4) for group in _LANES for i in order]


@intrinsic
def words4(typing: Any, base: Any, stride: Any, rows: Any) -> Any:
    """16 bytes of each of 16 rows -> 4 vectors; vector k, lane r: 4-byte word k of row r. Rows beyond ``rows`` repeat the last."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        line = [load(b, _row(b, args[0], args[1], args[2], r), ir.VectorType(I32, 4)) for r in range(16)]
        quads = []
        for q in range(4):  # 4 words of the rows q, 4 + q, 8 + q, 12 + q
            low = shuffle(b, line[q], line[q + 4], range(8))
            high = shuffle(b, line[q + 8], line[q + 12], range(8))
            quads.append(shuffle(b, low, high, range(16)))
        pairs = [shuffle(b, quads[i], quads[i + 1], _pick(order)) for i in (0, 2) for order in ([0, 4, 1, 5], [2, 6, 3, 7])]
        out = [shuffle(b, pairs[i], pairs[i + 2], _pick(order)) for i in (0, 1) for order in ([0, 1, 4, 5], [2, 3, 6, 7])]
        return pack(b, out)

    return types.UniTuple(INTS, 4)(types.int64, types.int64, types.int64), generate


def _there(b: Any, rows: Any) -> Any:
    return b.icmp_signed("<", ir.Constant(ir.VectorType(I64, 16), list(range(16))), splat(b, rows, 16))


def _gathered(element: Any, gives: Any, vector: Any) -> Any:
    @intrinsic
    def f(typing: Any, base: Any, stride: Any, rows: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            out = ir.Constant(vector, ir.Undefined)
            for r in range(16):
                out = b.insert_element(out, load(b, _row(b, args[0], args[1], args[2], r), element), ir.Constant(I32, r))
            return b.bitcast(b.select(_there(b, args[2]), out, constant(vector, 0)), gives.ll)

        return gives(types.int64, types.int64, types.int64), generate

    return f


halves16 = _gathered(I16, HALVES, ir.VectorType(I16, 16))
"""A 16-bit float of each of 16 rows; zero for rows that are not there."""
words16 = _gathered(I32, INTS, INTS.ll)
"""A 4-byte word of each of 16 rows; zero for rows that are not there."""
bytes16 = _gathered(ir.IntType(8), BYTES16, BYTES16.ll)
"""A byte of each of 16 rows; zero for rows that are not there."""


@intrinsic
def present(typing: Any, rows: Any) -> Any:
    """All bits of lane r set where row r is there."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.sext(_there(b, args[0]), INTS.ll)

    return INTS(types.int64), generate


def looker(name: str, table: Sequence[int]) -> Any:
    """An intrinsic (indices): words of a table, which lies in the kernel's own constants as ``name``."""

    @intrinsic
    def look(typing: Any, index: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            words = b.module.globals.get(name) or _constants(b.module, name, table)
            out = ir.Constant(INTS.ll, ir.Undefined)
            for r in range(16):
                lane = ir.Constant(I32, r)
                at = b.gep(words, [ir.Constant(I32, 0), b.extract_element(args[0], lane)], inbounds=True)
                out = b.insert_element(out, b.load(at), lane)
            return out

        return INTS(INTS), generate

    return look


def _constants(module: Any, name: str, table: Sequence[int]) -> Any:
    kind = ir.ArrayType(I32, len(table))
    words = ir.GlobalVariable(module, kind, name)
    words.initializer, words.global_constant, words.linkage = ir.Constant(kind, list(table)), True, "internal"
    return words
