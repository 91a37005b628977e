"""Values as they lie in the cache, for attention: a value of a quantised type is its code times its step, in float32."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.grid import WIDENED
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import (
    BYTES16,
    F16,
    F32,
    FLOATS,
    INTS,
    apart,
    constant,
    fused,
    load,
    offset,
    pack,
    splat,
    unpack,
    widen_half,
)
from localllm.backends.cpu.kernels.tile import tile_store
from localllm.backends.cpu.kernels.vec import ld_f, ld_h, st_f
from localllm.backends.cpu.kv_types import BITS, QUANTISED
from localllm.backends.cpu.records import TILE


def _vectors(b: Any, kind: str, codes: Any, steps: Any, m: int) -> list[Any]:
    """16*m values of a token, from ``codes`` on; quantised ones begin with a block, whose step is at ``steps``."""
    if kind not in QUANTISED:
        return [WIDENED[kind.upper()](b, offset(b, codes, 2 * BITS[kind] * t)) for t in range(m)]
    out = []
    for block in range(m // 2):
        step = splat(b, widen_half(b, load(b, offset(b, steps, 2 * block), F16)), 16)
        out += [b.fmul(b.sitofp(v, FLOATS.ll), step) for v in _block(b, kind, codes, block)]
    return out


def _block(b: Any, kind: str, codes: Any, block: int) -> list[Any]:
    """The 32 codes of a block as integers."""
    if kind == "q8_0":
        return [b.sext(load(b, offset(b, codes, 32 * block + 16 * i), BYTES16.ll), INTS.ll) for i in (0, 1)]
    both = b.zext(load(b, offset(b, codes, 16 * block), BYTES16.ll), INTS.ll)
    halves = b.and_(both, constant(INTS.ll, 15)), b.lshr(both, constant(INTS.ll, 4))
    return [b.sub(v, constant(INTS.ll, 8)) for v in halves]


def values_fma(kind: str, m: int) -> Any:
    """An intrinsic (acc, codes, steps, x, x_stride): vector (t, j) += the t-th 16 values of a token times the float at x + j*x_stride."""

    @intrinsic
    def f(typing: Any, acc: Any, codes: Any, steps: Any, x: Any, x_stride: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            n, old = acc.count // m, unpack(b, args[0])
            values = _vectors(b, kind, args[1], args[2], m)
            weights = [splat(b, load(b, apart(b, args[3], args[4], j), F32), 16) for j in range(n)]
            # Row by row: registers are short, and a weight is not needed again behind its own values.
            new = {(t, j): fused(b, values[t], weights[j], old[t * n + j]) for j in range(n) for t in range(m)}
            return pack(b, [new[t, j] for t in range(m) for j in range(n)])

        return acc(acc, *[types.int64] * 4), generate

    return f


def _two(kind: str) -> Any:
    @intrinsic
    def f(typing: Any, codes: Any, steps: Any) -> Any:
        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            return pack(b, _vectors(b, kind, args[0], args[1], 2))

        return types.UniTuple(FLOATS, 2)(types.int64, types.int64), generate

    return f


def key_widener(kind: str) -> Any:
    """(keys, wide, n, k): the first n keys of a tile as float32, in whole blocks of 16, to k; quantised ones are used where they are."""
    if kind in QUANTISED:

        @helper
        def widen(keys: int, wide: int, n: int, k: int) -> None:
            pass

    else:
        fetch, size = (ld_h, 32) if kind == "f16" else (ld_f, 64)

        @helper
        def widen(keys: int, wide: int, n: int, k: int) -> None:
            for i in range((n + 15) // 16 * wide):
                st_f(k + 64 * i, fetch(keys + size * i))

    return widen


def value_widener(kind: str) -> Any:
    """(values, wide, n, v): the first n values of a tile as float32 [wide/16][TILE][16], to v."""
    if kind in QUANTISED:
        two, bits = _two(kind), BITS[kind]

        @helper
        def widen(values: int, wide: int, n: int, v: int) -> None:
            row, steps = wide * bits // 8, values + TILE * wide * bits // 8
            for j in range(0, wide, 32):
                for i in range(n):
                    found = two(values + i * row + j * bits // 8, steps + i * (wide // 16) + j // 16)
                    tile_store(v + 4 * j * TILE + 64 * i, 64 * TILE, found)

    else:
        fetch, each = (ld_h, 2) if kind == "f16" else (ld_f, 4)

        @helper
        def widen(values: int, wide: int, n: int, v: int) -> None:
            for j in range(0, wide, 16):
                for i in range(n):
                    st_f(v + 4 * j * TILE + 64 * i, fetch(values + each * (i * wide + j)))

    return widen
