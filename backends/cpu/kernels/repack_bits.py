"""Packers of signs and of three or four levels without scales of their own. What a packer gives: repack_blocks.py."""

from __future__ import annotations

from typing import Any

from numba import int32

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.repack_k import two_bits
from localllm.backends.cpu.kernels.repack_parts import pairs_of, plane_of_bits, st_half
from localllm.backends.cpu.kernels.transpose import halves16, words4, words16
from localllm.backends.cpu.kernels.vec import shl, shr, sp_i, st_i
from localllm.backends.cpu.layout import LAYOUTS


def q1_0(name: str) -> Any:
    """128 bits in the order of the values."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes = layout.head, layout.sub_bytes, layout.tile_bytes

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s, stride, rows))
        o += head + tile_bytes * g
        for j in range(4):
            st_i(o + sub * j, plane_of_bits(words16(s + 2 + 4 * j, stride, rows)))

    return tile


@helper
def _transposed(words: Any) -> Any:
    """Bit pairs k of bytes t to bit pairs t of bytes k."""
    swap = (words ^ shr(words, 6)) & sp_i(int32(0x00CC00CC))
    words = words ^ swap ^ shl(swap, 6)
    swap = (words ^ shr(words, 12)) & sp_i(int32(0x0000F0F0))
    return words ^ swap ^ shl(swap, 12)


def q2_0(name: str) -> Any:
    """64 bit pairs in the order of the values."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes = layout.head, layout.sub_bytes, layout.tile_bytes

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s, stride, rows))
        o += head + tile_bytes * g
        a, b, c, d = words4(s + 2, stride, rows)
        st_i(o, _transposed(a))
        st_i(o + 64, _transposed(b))
        st_i(o + sub, _transposed(c))
        st_i(o + sub + 64, _transposed(d))

    return tile


def tq2_0(name: str) -> Any:
    """Bit pairs 32 values apart."""
    layout = LAYOUTS[name]
    head, tile_bytes, quants = layout.head, layout.tile_bytes, two_bits(name)

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s + 64, stride, rows))
        quants(s, stride, rows, o + head + tile_bytes * g)

    return tile


@helper
def _digits(words: Any) -> Any:
    """(the next base-3 digit of each byte, what is left): a byte is a fraction of 256, the digit what three times it overflows by."""
    low = sp_i(int32(0x00FF00FF))
    even = words & low
    odd = shr(words, 8) & low
    even = even + even + even
    odd = odd + odd + odd
    top = sp_i(int32(0x00030003))
    return (shr(even, 8) & top) | shl(shr(odd, 8) & top, 8), (even & low) | shl(odd & low, 8)


@helper
def _digits4(words: Any) -> Any:
    a, x = _digits(words[0])
    b, y = _digits(words[1])
    c, z = _digits(words[2])
    d, w = _digits(words[3])
    return (a, b, c, d), (x, y, z, w)


def tq1_0(name: str) -> Any:
    """Digits of a byte 32 values apart in the first 160 values, 16 in the next 80, 4 in the last 16."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes = layout.head, layout.sub_bytes, layout.tile_bytes

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s + 52, stride, rows))
        o += head + tile_bytes * g
        a = words4(s, stride, rows)
        b = words4(s + 16, stride, rows)
        for _ in range(5):
            low, a = _digits4(a)
            high, b = _digits4(b)
            st_i(o, pairs_of(low, 0))
            st_i(o + 64, pairs_of(high, 0))
            o += sub
        a = words4(s + 32, stride, rows)
        for i in range(5):
            low, a = _digits4(a)
            st_i(o + sub * (i // 2) + 64 * (i % 2), pairs_of(low, 0))
        rest = words16(s + 48, stride, rows)
        p, rest = _digits(rest)
        q, rest = _digits(rest)
        r, rest = _digits(rest)
        t, rest = _digits(rest)
        st_i(o + 2 * sub + 64, pairs_of((p, q, r, t), 0))

    return tile
