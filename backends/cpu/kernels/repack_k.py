"""Packers of the superblocks of 256 values with scales of 4 to 8 bits. What a packer gives: repack_blocks.py."""

from __future__ import annotations

from typing import Any

from numba import int32

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.repack_parts import byte_scales, nibble_words, pairs_of, plane_of, st_half
from localllm.backends.cpu.kernels.tile import tile_store
from localllm.backends.cpu.kernels.transpose import bytes16, halves16, words4, words16
from localllm.backends.cpu.kernels.vec import shl, shr, sp_i, st_b16, st_i, to_b16
from localllm.backends.cpu.layout import LAYOUTS


def _super_scales(name: str) -> Any:
    """(s, stride, rows, o, g): d, dmin and the 6-bit scales and mins of Q4_K and Q5_K."""
    layout = LAYOUTS[name]
    sub, head = layout.sub_bytes, layout.head

    @helper
    def scales(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s, stride, rows))
        st_half(o + 128 + 32 * g, halves16(s + 2, stride, rows))
        m6 = sp_i(int32(0x3F3F3F3F))
        m4 = sp_i(int32(0x0F0F0F0F))
        m2 = sp_i(int32(0x30303030))
        a = words16(s + 4, stride, rows)
        b = words16(s + 8, stride, rows)
        c = words16(s + 12, stride, rows)
        q = o + head + 16 * g
        byte_scales(a & m6, q, sub)
        byte_scales(b & m6, q + 64, sub)
        byte_scales((c & m4) | (shr(a, 2) & m2), q + 4 * sub, sub)
        byte_scales((shr(c, 4) & m4) | (shr(b, 2) & m2), q + 4 * sub + 64, sub)

    return scales


def _four_bits(name: str, quants: int, fifth: bool) -> Any:
    """A packer of 64 values in every 32 bytes from ``quants`` on; a fifth bit of each stands before these."""
    layout = LAYOUTS[name]
    scales, codes, sub, tile_bytes = _super_scales(name), layout.head + layout.codes_at, layout.sub_bytes, layout.tile_bytes
    low_at = 64 if fifth else 0

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        scales(s, stride, rows, o, g)
        o += codes + tile_bytes * g
        high_a = words4(s + 16, stride, rows)
        high_b = words4(s + 32, stride, rows)
        for p in range(4):
            low = words4(s + quants + 32 * p, stride, rows)
            high = words4(s + quants + 16 + 32 * p, stride, rows)
            nibble_words(low, high, False, o + low_at)
            nibble_words(low, high, True, o + sub + low_at)
            if fifth:
                st_i(o, plane_of(high_a, high_b, 2 * p))
                st_i(o + sub, plane_of(high_a, high_b, 2 * p + 1))
            o += 2 * sub

    return tile


def q4_k(name: str) -> Any:
    return _four_bits(name, 16, False)


def q5_k(name: str) -> Any:
    return _four_bits(name, 48, True)


def q6_k(name: str) -> Any:
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s + 208, stride, rows))
        q = o + head + 16 * g
        for j in range(8):  # two scales of 16 values in each sub-record
            st_b16(q + sub * j, bytes16(s + 192 + 2 * j, stride, rows))
            st_b16(q + sub * j + 64, bytes16(s + 193 + 2 * j, stride, rows))
        o += head + codes + tile_bytes * g
        for h in range(2):
            high_a = words4(s + 128 + 32 * h, stride, rows)
            high_b = words4(s + 144 + 32 * h, stride, rows)
            for k in range(4):  # values 32k of the half: k odd from the second 32 bytes, k > 1 from the upper nibbles
                at_q = s + 64 * h + 32 * (k & 1)
                nibble_words(words4(at_q, stride, rows), words4(at_q + 16, stride, rows), k > 1, o + 128)
                st_i(o, pairs_of(high_a, k))
                st_i(o + 64, pairs_of(high_b, k))
                o += sub

    return tile


def iq4_xs(name: str) -> Any:
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s, stride, rows))
        top = shr(words16(s, stride, rows), 16)
        low = words16(s + 4, stride, rows)
        m4, m2, k32 = sp_i(int32(15)), sp_i(int32(3)), sp_i(int32(32))
        q = o + head + 16 * g
        for j in range(8):
            st_b16(q + sub * j, to_b16(((low & m4) | shl(top & m2, 4)) - k32))
            low = shr(low, 4)
            top = shr(top, 2)
        o += head + codes + tile_bytes * g
        for j in range(8):
            tile_store(o + sub * j, 64, words4(s + 8 + 16 * j, stride, rows))

    return tile


def q2_k(name: str) -> Any:
    """A byte of the file has a group's scale and minimum, as here."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at
    quants = two_bits(name)

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s + 80, stride, rows))
        st_half(o + 128 + 32 * g, halves16(s + 82, stride, rows))
        q = o + head + 16 * g
        for j in range(8):
            st_b16(q + sub * j, bytes16(s + 2 * j, stride, rows))
            st_b16(q + sub * j + 64, bytes16(s + 2 * j + 1, stride, rows))
        quants(s + 16, stride, rows, o + head + codes + tile_bytes * g)

    return tile


def two_bits(name: str) -> Any:
    """(s, stride, rows, o): 64 bytes of Q2_K, Q3_K or TQ2_0, whose bit pairs are 32 values apart."""
    sub = LAYOUTS[name].sub_bytes

    @helper
    def quants(s: int, stride: int, rows: int, o: int) -> None:
        for h in range(2):
            a = words4(s + 32 * h, stride, rows)
            b = words4(s + 32 * h + 16, stride, rows)
            for k in range(4):
                st_i(o, pairs_of(a, k))
                st_i(o + 64, pairs_of(b, k))
                o += sub

    return quants


def q3_k(name: str) -> Any:
    """Scales of 6 bits in three words: four times four of them, low bits of two in a byte, high bits of four."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at
    quants = two_bits(name)

    @helper
    def four(low: Any, high: Any, o: int) -> None:
        words = (low & sp_i(int32(0x0F0F0F0F))) | shl(high & sp_i(int32(0x03030303)), 4)
        for _ in range(2):
            st_b16(o, to_b16(words - sp_i(int32(32))))
            st_b16(o + 64, to_b16(shr(words, 8) - sp_i(int32(32))))
            words = shr(words, 16)
            o += sub

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        st_half(o + 32 * g, halves16(s + 108, stride, rows))
        a = words16(s + 96, stride, rows)
        b = words16(s + 100, stride, rows)
        high = words16(s + 104, stride, rows)
        q = o + head + 16 * g
        four(a, high, q)
        four(b, shr(high, 2), q + 2 * sub)
        four(shr(a, 4), shr(high, 4), q + 4 * sub)
        four(shr(b, 4), shr(high, 6), q + 6 * sub)
        o += head + codes + tile_bytes * g
        quants(s + 32, stride, rows, o + 64)
        third_a = words4(s, stride, rows)
        third_b = words4(s + 16, stride, rows)
        for j in range(8):
            st_i(o + sub * j, plane_of(third_a, third_b, j))

    return tile
