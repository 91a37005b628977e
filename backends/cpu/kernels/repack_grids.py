"""Packers of the formats whose values come from a grid: the grid is looked up here, once, and the multiplication knows only values.

A table has, for each entry of a grid, the numbers of its values as codes.py wants them: of 8 values 2 bits each in a word, byte k those of
values k and 4 + k; of 4 values 3 bits each, a byte a value. What a packer gives: repack_blocks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import int32

from localllm.backends.cpu.kernels.codes import IQ2, IQ3_S, IQ3_XXS
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.repack_parts import spread, st_half
from localllm.backends.cpu.kernels.transpose import bytes16, halves16, looker, words16
from localllm.backends.cpu.kernels.vec import as_halves, shl, shr, sp_i, st_b16, st_i, to_b16, u8_to_i
from localllm.backends.cpu.layout import LAYOUTS
from localllm.quant.grids import gather


def _grid(name: str, entries: int, values: Sequence[int]) -> Any:
    """The intrinsic (indices) -> words of a grid's table."""
    numbers = np.searchsorted(values, gather(name, np.arange(entries)[None]).reshape(entries, -1))
    if numbers.shape[1] == 8:
        numbers = numbers[:, :4] + 4 * numbers[:, 4:]
    return looker(f"grid_{name}", np.ascontiguousarray(numbers, np.uint8).view("<u4")[:, 0].tolist())


@helper
def _odd(bits: Any) -> Any:
    """2 * (bits 0-3) + 1."""
    low = bits & sp_i(int32(15))
    return low + low + sp_i(int32(1))


@helper
def _parity(low: Any) -> Any:
    """Bits 0-6 of signs, and an eighth that makes their number even."""
    low = low & sp_i(int32(127))
    odd = low ^ shr(low, 4)
    odd = odd ^ shr(odd, 2)
    odd = (odd ^ shr(odd, 1)) & sp_i(int32(1))
    return low | shl(odd, 7)


@helper
def _parities(words: Any) -> Any:
    """Four times 7 bits of signs to four bytes."""
    a = _parity(words)
    b = _parity(shr(words, 7))
    c = _parity(shr(words, 14))
    d = _parity(shr(words, 21))
    return a | shl(b, 8) | shl(c, 16) | shl(d, 24)


@helper
def _sign_pairs(bits: Any) -> Any:
    """Signs of 8 values: byte k has those of values k and 4 + k."""
    return spread(bits) | shl(spread(shr(bits, 4)), 1)


def _eights(name: str, entries: int, values: Sequence[int]) -> Any:
    """(a, b, c, d, o): the entries of 32 values, 8 each, to the lower two bits of a tile."""
    look = _grid(name, entries, values)

    @helper
    def eights(a: Any, b: Any, c: Any, d: Any, o: int) -> None:
        st_i(o, look(a) | shl(look(b), 4))
        st_i(o + 64, look(c) | shl(look(d), 4))

    return eights


@helper
def _signs(bits: Any, o: int) -> None:
    """32 signs to the third bit of a tile."""
    low = _sign_pairs(bits) | shl(_sign_pairs(shr(bits, 8)), 2)
    st_i(o, low | shl(_sign_pairs(shr(bits, 16)), 4) | shl(_sign_pairs(shr(bits, 24)), 6))


def _in_eight(name: str, one: Any) -> Any:
    """A packer of superblocks that begin with d, from one of their 8 sub-records: (s, stride, rows, j, p, q), the j-th to its tile at p and
    its scales at q."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s, stride, rows))
        o += head
        for j in range(8):
            one(s, stride, rows, j, o + codes + tile_bytes * g, o + 16 * g)
            o += sub

    return tile


@helper
def _two_scales(bits: Any, q: int) -> None:
    """Two scales of 4 bits each to those of the first and of the last 16 values."""
    st_b16(q, to_b16(_odd(bits)))
    st_b16(q + 64, to_b16(_odd(shr(bits, 4))))


def iq2_xxs(name: str) -> Any:
    """Two words a group: four entries; signs and scale."""
    eights = _eights(name, 256, IQ2[:3])

    @helper
    def one(s: int, stride: int, rows: int, j: int, p: int, q: int) -> None:
        low = sp_i(int32(255))
        w = words16(s + 2 + 8 * j, stride, rows)
        top = words16(s + 6 + 8 * j, stride, rows)
        eights(w & low, shr(w, 8) & low, shr(w, 16) & low, shr(w, 24), p + 64)
        _signs(_parities(top), p)
        st_b16(q, to_b16(_odd(shr(top, 28))))

    return _in_eight(name, one)


def iq2_xs(name: str) -> Any:
    """A word for two entries with their signs; two scales in a byte."""
    eights = _eights(name, 512, IQ2[:3])

    @helper
    def one(s: int, stride: int, rows: int, j: int, p: int, q: int) -> None:
        low = sp_i(int32(511))
        w = words16(s + 2 + 8 * j, stride, rows)
        v = words16(s + 6 + 8 * j, stride, rows)
        eights(w & low, shr(w, 16) & low, v & low, shr(v, 16) & low, p + 64)
        signs = _parity(shr(w, 9)) | shl(_parity(shr(w, 25)), 8) | shl(_parity(shr(v, 9)), 16)
        _signs(signs | shl(_parity(shr(v, 25)), 24), p)
        _two_scales(u8_to_i(bytes16(s + 66 + j, stride, rows)), q)

    return _in_eight(name, one)


def iq2_s(name: str) -> Any:
    """Entries of 8 bits and two more elsewhere, signs of their own; two scales in a byte."""
    eights = _eights(name, 1024, IQ2[:3])

    @helper
    def one(s: int, stride: int, rows: int, j: int, p: int, q: int) -> None:
        low = sp_i(int32(0xFF))
        top = sp_i(int32(0x300))
        w = words16(s + 2 + 4 * j, stride, rows)
        h = shl(u8_to_i(bytes16(s + 66 + j, stride, rows)), 8)
        a = (w & low) | (h & top)
        b = (shr(w, 8) & low) | (shr(h, 2) & top)
        c = (shr(w, 16) & low) | (shr(h, 4) & top)
        eights(a, b, c, shr(w, 24) | (shr(h, 6) & top), p + 64)
        _signs(words16(s + 34 + 4 * j, stride, rows), p)
        _two_scales(u8_to_i(bytes16(s + 74 + j, stride, rows)), q)

    return _in_eight(name, one)


def _fours(name: str, entries: int, values: Sequence[int]) -> Any:
    """(low, high, top, signs, o): 8 entries of 4 values to a tile of nibbles; 8 bits of each in two words, ``top`` their ninth ones."""
    look, ninth = _grid(name, entries, values), entries > 256

    @helper
    def fours(low: Any, high: Any, top: Any, signs: Any, o: int) -> None:
        m = sp_i(int32(255))
        one = sp_i(int32(256))
        for t in range(4):
            a = low & m
            b = high & m
            if ninth:
                a = a | (top & one)
                b = b | (shr(top, 4) & one)
                top = shr(top, 1)
            a = look(a) | shl(spread(signs), 3)
            b = look(b) | shl(spread(shr(signs, 16)), 3)
            st_i(o + 64 * t, a | shl(b, 4))
            low = shr(low, 8)
            high = shr(high, 8)
            signs = shr(signs, 4)

    return fours


def iq3_xxs(name: str) -> Any:
    """Entries in bytes; a word of signs and scale for each group."""
    fours = _fours(name, 256, IQ3_XXS[:8])

    @helper
    def one(s: int, stride: int, rows: int, j: int, p: int, q: int) -> None:
        low = words16(s + 2 + 8 * j, stride, rows)
        high = words16(s + 6 + 8 * j, stride, rows)
        top = words16(s + 66 + 4 * j, stride, rows)
        fours(low, high, low, _parities(top), p)
        st_b16(q, to_b16(_odd(shr(top, 28))))

    return _in_eight(name, one)


def iq3_s(name: str) -> Any:
    """Entries of 8 bits and one more elsewhere, signs of their own; the scales of two groups in a byte."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at
    fours = _fours(name, 512, IQ3_S[:8])

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s, stride, rows))
        o += head
        scales = words16(s + 106, stride, rows)
        for j in range(8):
            low = words16(s + 2 + 8 * j, stride, rows)
            high = words16(s + 6 + 8 * j, stride, rows)
            ninth = shl(u8_to_i(bytes16(s + 66 + j, stride, rows)), 8)
            fours(low, high, ninth, words16(s + 74 + 4 * j, stride, rows), o + codes + tile_bytes * g)
            st_b16(o + 16 * g, to_b16(_odd(scales)))
            scales = shr(scales, 4)
            o += sub

    return tile


_TERNARY = (-1, 0, 1)


def iq1_s(name: str) -> Any:
    """A group's delta is a minimum here: the sign of its scale says which."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at
    eights = _eights(name, 2048, _TERNARY)

    @helper
    def group(w: Any, h: Any, o: int, g: int) -> None:
        low = sp_i(int32(0xFF))
        top = sp_i(int32(0x700))
        a = (w & low) | (shl(h, 8) & top)
        b = (shr(w, 8) & low) | (shl(h, 5) & top)
        c = (shr(w, 16) & low) | (shl(h, 2) & top)
        eights(a, b, c, shr(w, 24) | (shr(h, 1) & top), o + codes + tile_bytes * g)
        negative = sp_i(int32(0)) - (shr(h, 15) & sp_i(int32(1)))
        scale = _odd(shr(h, 12) & sp_i(int32(7)))
        st_b16(o + 16 * g, to_b16((scale ^ negative) - negative))

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s, stride, rows))
        o += head
        for j in range(4):
            h = words16(s + 34 + 4 * j, stride, rows)
            group(words16(s + 2 + 8 * j, stride, rows), h, o, g)
            group(words16(s + 6 + 8 * j, stride, rows), shr(h, 16), o + sub, g)
            o += 2 * sub

    return tile


def iq1_m(name: str) -> Any:
    """A delta for each entry: the third bit of its values. Four words have four scales of 3 bits each, and four bits of d."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at
    eights = _eights(name, 2048, _TERNARY)

    @helper
    def group(w: Any, h: Any, scales: Any, o: int, g: int) -> None:
        low = sp_i(int32(0xFF))
        top = sp_i(int32(0x700))
        a = (w & low) | (shl(h, 8) & top)
        b = (shr(w, 8) & low) | (shl(h, 4) & top)
        c = (shr(w, 16) & low) | (h & top)
        p = o + codes + tile_bytes * g
        eights(a, b, c, shr(w, 24) | (shr(h, 4) & top), p + 64)
        one = sp_i(int32(1))
        two = sp_i(int32(0x03030303))
        h = h ^ sp_i(int32(-1))  # the bit says that delta is negative
        plane = ((shr(h, 3) & one) * two) | shl((shr(h, 7) & one) * two, 2)
        st_i(p, plane | shl((shr(h, 11) & one) * two, 4) | shl((shr(h, 15) & one) * two, 6))
        seven = sp_i(int32(7))
        st_b16(o + 16 * g, to_b16(_odd(scales & seven)))
        st_b16(o + 64 + 16 * g, to_b16(_odd(shr(scales, 3) & seven)))

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        a = words16(s + 48, stride, rows)
        b = words16(s + 52, stride, rows)
        nibble = sp_i(int32(15))
        d = (shr(a, 12) & nibble) | shl(shr(a, 28), 4) | shl(shr(b, 12) & nibble, 8) | shl(shr(b, 28), 12)
        st_half(o + 32 * g, as_halves(d))
        o += head
        for j in range(4):
            h = words16(s + 32 + 4 * j, stride, rows)
            group(words16(s + 8 * j, stride, rows), h, a, o, g)
            group(words16(s + 8 * j + 4, stride, rows), shr(h, 16), shr(a, 6), o + sub, g)
            a = shr(a, 16) if j % 2 == 0 else b
            o += 2 * sub

    return tile
