"""Signs times one column, without multiplying sign by sign: the 16 possible sums of four activations are looked up by four bits.

A byte k of the 4 that a row has for 32 values (codes.py) has the signs of values 4t + k in bit t. So its lower four bits choose among 16
sums of x[k], x[4+k], x[8+k], x[12+k], and its upper four among those of the values 16 further on. The tables of all four k are 64 entries,
which ``vpermb`` looks up 64 times in one instruction; sums take two bytes. The idea is T-MAC's (Wei and others, 2024); the sums are exact
here, so the bits are those of the products.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.dot import dot4
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import (
    BYTES,
    BYTES16,
    F32,
    INTS,
    call,
    constant,
    load,
    load_in_order,
    offset,
    pack,
    shift,
    shuffle,
    store,
)
from localllm.backends.cpu.kernels.scales import scales_of
from localllm.backends.cpu.kernels.tile import tile_scaled
from localllm.backends.cpu.layout import X_BLOCK, X_STEP, Layout

TABLES = 320
"""Bytes of the tables of 32 values: for the first and for the last 16 of them 64 lower bytes of sums and 64 upper ones; then their step."""
_STEP = 256
_ENTRIES = [[e >> i & 1 for i in range(4)] for e in range(16)]


def _sums(b: Any, x: Any, first: int) -> Any:
    """16 sums of x[first + 4i], i = 0..3: bit i of the lane's number says whether it is added or subtracted."""
    four = shuffle(b, x, x, [first + 4 * i for i in range(4)] * 16)
    plus, minus = ([bit ^ flip for entry in _ENTRIES for bit in entry] for flip in (0, 1))
    zero = constant(INTS.ll, 0)
    return b.sub(*(dot4(b, zero, constant(BYTES.ll, bits), four) for bits in (plus, minus)))


@intrinsic
def _table(typing: Any, x: Any, out: Any) -> Any:
    """The tables of 32 values of a tile of one column."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        values = load(b, args[0], BYTES.ll)  # the 32 values and what else is known of them: one block is 64 bytes
        for half in range(2):
            for k in range(4):
                sums, at = _sums(b, values, 16 * half + k), 128 * half + 16 * k
                store(b, b.trunc(sums, BYTES16.ll), offset(b, args[1], at))
                store(b, b.trunc(b.lshr(sums, constant(INTS.ll, 8)), BYTES16.ll), offset(b, args[1], at + 64))
        store(b, load(b, offset(b, args[0], X_STEP), F32), offset(b, args[1], _STEP))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@helper
def tables(x: int, blocks: int, out: int) -> None:
    """Those of a whole column."""
    for _ in range(blocks):
        _table(x, out)
        x += X_BLOCK
        out += TABLES


def _looked_up(b: Any, table: Any, index: Any) -> Any:
    return call(b, "llvm.x86.avx512.permvar.qi.512", BYTES.ll, [load(b, table, BYTES.ll), index])


@intrinsic
def _dot(typing: Any, w: Any, x: Any) -> Any:
    """The tile of signs at w . the 32 values that the tables at x are of, times 8."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        bits = load_in_order(b, args[0], BYTES.ll)
        index = [b.or_(b.and_(v, constant(BYTES.ll, 15)), constant(BYTES.ll, [0, 16, 32, 48] * 16)) for v in (bits, shift(b, bits, -4))]
        eight, sums = constant(BYTES.ll, 8), constant(INTS.ll, 0)
        for half in range(2):
            sums = dot4(b, sums, eight, _looked_up(b, offset(b, args[1], 128 * half + 64), index[half]))
        sums = b.shl(sums, constant(INTS.ll, 8))
        for half in range(2):
            sums = dot4(b, sums, _looked_up(b, offset(b, args[1], 128 * half), index[half]), eight)
        return pack(b, [sums])

    return types.UniTuple(INTS, 1)(types.int64, types.int64), generate


def stepper(layout: Layout) -> Any:
    """(acc, w, sub, head, g, x): one block of one tile; x: its tables."""
    d0 = scales_of(layout).d0

    @njit(inline="always")
    def step(acc: Any, w: int, sub: int, head: int, g: int, x: int) -> Any:
        return tile_scaled(acc, _dot(w, x), d0(sub, head, g), x + _STEP)

    return step
