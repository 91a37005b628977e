"""Packed scales to float32: for each way of packing the d (and m) of one tile's 16 rows, exact products."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from numba import float32, int32, njit

from localllm.backends.cpu.kernels.vec import bits_f, i8_to_i, ld_b16, ld_e4m3, ld_h, shl, shr, sp_f, sp_i, to_f, u8_to_i, vabs, vmax
from localllm.backends.cpu.layout import Layout


def scales_of(layout: Layout) -> SimpleNamespace:
    """Functions (sub, head, g) -> 16 floats; sub: address of the scales of 32 values, head: of the record, g: which tile. ``d0``, ``m0``;
    with halves ``d1`` too, where m0 is the difference of the first half's m to m1, the last half's."""
    return _KINDS[layout.scales](layout)


def _unit(layout: Layout) -> Any:
    """(head, g): the superblock's d times the layout's unit."""
    unit = float32(layout.unit)

    @njit(inline="always")
    def d(head: int, g: int) -> Any:
        return ld_h(head + 32 * g) * sp_f(unit)

    return d


def _half(layout: Layout) -> SimpleNamespace:
    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return ld_h(sub + 32 * g)

    @njit(inline="always")
    def m0(sub: int, head: int, g: int) -> Any:
        return ld_h(sub + 128 + 32 * g)

    return SimpleNamespace(d0=d0, m0=m0, d1=d0, m1=m0)


def _super(layout: Layout) -> SimpleNamespace:
    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return to_f(u8_to_i(ld_b16(sub + 16 * g))) * ld_h(head + 32 * g)

    @njit(inline="always")
    def m0(sub: int, head: int, g: int) -> Any:
        return (sp_f(float32(0.0)) - to_f(u8_to_i(ld_b16(sub + 64 + 16 * g)))) * ld_h(head + 128 + 32 * g)

    return SimpleNamespace(d0=d0, m0=m0, d1=d0, m1=m0)


def _signed(layout: Layout) -> SimpleNamespace:
    d = _unit(layout)

    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return to_f(i8_to_i(ld_b16(sub + 16 * g))) * d(head, g)

    @njit(inline="always")
    def d1(sub: int, head: int, g: int) -> Any:
        return to_f(i8_to_i(ld_b16(sub + 64 + 16 * g))) * d(head, g)

    return SimpleNamespace(d0=d0, m0=d0, d1=d1, m1=d1)


def _both(layout: Layout) -> SimpleNamespace:
    """A byte has the scale in its lower half, the minimum in the upper."""

    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return to_f(u8_to_i(ld_b16(sub + 16 * g)) & sp_i(int32(15))) * ld_h(head + 32 * g)

    @njit(inline="always")
    def d1(sub: int, head: int, g: int) -> Any:
        return to_f(u8_to_i(ld_b16(sub + 64 + 16 * g)) & sp_i(int32(15))) * ld_h(head + 32 * g)

    @njit(inline="always")
    def m0(sub: int, head: int, g: int) -> Any:
        last = shr(u8_to_i(ld_b16(sub + 64 + 16 * g)), 4)
        return to_f(last - shr(u8_to_i(ld_b16(sub + 16 * g)), 4)) * ld_h(head + 128 + 32 * g)

    @njit(inline="always")
    def m1(sub: int, head: int, g: int) -> Any:
        last = shr(u8_to_i(ld_b16(sub + 64 + 16 * g)), 4)
        return to_f(sp_i(int32(0)) - last) * ld_h(head + 128 + 32 * g)

    return SimpleNamespace(d0=d0, m0=m0, d1=d1, m1=m1)


def _head(layout: Layout) -> SimpleNamespace:
    d = _unit(layout)

    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return d(head, g)

    return SimpleNamespace(d0=d0, m0=d0, d1=d0, m1=d0)


def _delta(layout: Layout) -> SimpleNamespace:
    """d is the size of a byte, m the byte with its sign, both in the same unit."""
    d = _unit(layout)

    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return vabs(to_f(i8_to_i(ld_b16(sub + 16 * g)))) * d(head, g)

    @njit(inline="always")
    def m0(sub: int, head: int, g: int) -> Any:
        return to_f(i8_to_i(ld_b16(sub + 16 * g))) * d(head, g)

    return SimpleNamespace(d0=d0, m0=m0, d1=d0, m1=m0)


def _power(layout: Layout) -> SimpleNamespace:
    """2 to the power of a signed byte: the bits of the float, or of one of the two that are denormal, whichever is larger."""

    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        e = i8_to_i(ld_b16(sub + 16 * g))
        return vmax(bits_f(shl(e + sp_i(int32(127)), 23)), bits_f(shl(e + sp_i(int32(129)), 21)))

    return SimpleNamespace(d0=d0, m0=d0, d1=d0, m1=d0)


def _e4m3(layout: Layout) -> SimpleNamespace:
    unit = float32(layout.unit)

    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return ld_e4m3(sub + 16 * g) * sp_f(unit)

    @njit(inline="always")
    def d1(sub: int, head: int, g: int) -> Any:
        return ld_e4m3(sub + 64 + 16 * g) * sp_f(unit)

    return SimpleNamespace(d0=d0, m0=d0, d1=d1, m1=d1)


_KINDS = {
    "half": _half,
    "super": _super,
    "signed": _signed,
    "both": _both,
    "head": _head,
    "delta": _delta,
    "power": _power,
    "e4m3": _e4m3,
}
