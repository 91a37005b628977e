"""Packed scales to float32: for each way of packing the d (and m) of one tile's 16 rows, exact products."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from numba import float32, njit

from localllm.backends.cpu.kernels.vec import i8_to_i, ld_b16, ld_f, ld_h, sp_f, to_f, u8_to_i
from localllm.backends.cpu.layout import Layout


def scales_of(layout: Layout) -> SimpleNamespace:
    """Functions (sub, head, g) -> 16 floats; sub: address of the scales of 32 values, head: of the record, g: which tile. ``d0``, ``m0``;
    with halves ``d1`` too, where m0 is the difference of the first half's m to m1, the last half's."""
    return {"half": _half, "super": _super, "signed": _signed, "float": _float}[layout.scales](layout)


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
    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return to_f(i8_to_i(ld_b16(sub + 16 * g))) * ld_h(head + 32 * g)

    @njit(inline="always")
    def d1(sub: int, head: int, g: int) -> Any:
        return to_f(i8_to_i(ld_b16(sub + 64 + 16 * g))) * ld_h(head + 32 * g)

    return SimpleNamespace(d0=d0, m0=d0, d1=d1, m1=d1)


def _float(layout: Layout) -> SimpleNamespace:
    @njit(inline="always")
    def d0(sub: int, head: int, g: int) -> Any:
        return ld_f(sub + 64 * g)

    @njit(inline="always")
    def d1(sub: int, head: int, g: int) -> Any:
        return ld_f(sub + 256 + 64 * g)

    @njit(inline="always")
    def m0(sub: int, head: int, g: int) -> Any:
        return ld_f(sub + 512 + 64 * g)

    @njit(inline="always")
    def m1(sub: int, head: int, g: int) -> Any:
        return ld_f(sub + 768 + 64 * g)

    return SimpleNamespace(d0=d0, m0=m0, d1=d1, m1=m1)
