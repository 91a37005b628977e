"""Packers of the formats of small blocks: 32 values with one scale, and the four-bit floats.

A packer gives (s, stride, rows, o, g): the block at s of 16 rows to tile g of the record at o.
"""

from __future__ import annotations

from typing import Any

from numba import int32

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.repack_parts import nibble_words, plane_of_bits, st_half
from localllm.backends.cpu.kernels.tile import tile_store
from localllm.backends.cpu.kernels.transpose import bytes16, halves16, present, words4, words16
from localllm.backends.cpu.kernels.vec import shr, sp_i, st_b16, st_i, to_b16, u8_to_i
from localllm.backends.cpu.layout import LAYOUTS


def _quants(codes: str) -> Any:
    """(q, high, stride, rows, o): values of the block formats; q: address of the nibbles or bytes in row 0, high: of the fifth bits."""
    low_at = 64 if codes == "five" else 0

    @helper
    def quants(q: int, high: int, stride: int, rows: int, o: int) -> None:
        if codes == "byte":
            flip = sp_i(int32(-0x7F7F7F80))
            for i in range(2):
                a, b, c, d = words4(q + 16 * i, stride, rows)
                tile_store(o + 256 * i, 64, (a ^ flip, b ^ flip, c ^ flip, d ^ flip))
            return
        tile_store(o + low_at, 64, words4(q, stride, rows))
        if codes == "five":
            st_i(o, plane_of_bits(words16(high, stride, rows)))

    return quants


def half_blocks(name: str) -> Any:
    """Blocks of 32 values with float16 scales: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL."""
    layout = LAYOUTS[name]
    quants, codes, tile_bytes, mins = _quants(layout.codes), layout.codes_at, layout.tile_bytes, layout.mins
    high = 2 + 2 * mins
    q = high + (4 if layout.codes == "five" else 0)

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        quants(s + q, s + high, stride, rows, o + codes + tile_bytes * g)
        st_half(o + 32 * g, halves16(s, stride, rows))
        if mins:
            st_half(o + 128 + 32 * g, halves16(s + 2, stride, rows))

    return tile


def mxfp4(name: str) -> Any:
    """A row that is not there has codes of zero: no power of two is zero."""
    layout = LAYOUTS[name]
    codes, tile_bytes = layout.codes_at, layout.tile_bytes

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        there = present(rows)
        a, b, c, d = words4(s + 1, stride, rows)
        tile_store(o + codes + tile_bytes * g, 64, (a & there, b & there, c & there, d & there))
        e = u8_to_i(bytes16(s, stride, rows)) - sp_i(int32(128))
        st_b16(o + 16 * g, to_b16(e & there))

    return tile


@helper
def _unsigned_e4m3(words: Any) -> Any:
    """Bytes without their sign, and zero where they are 0x7F."""
    low = sp_i(int32(0x7F7F7F7F))
    z = words ^ low
    zero = (((z & low) + low) | z | low) ^ sp_i(int32(-1))  # bit 7 of the bytes of z that are zero
    return words & low & ((zero - shr(zero, 7)) ^ sp_i(int32(-1)))


def nvfp4(name: str) -> Any:
    """Groups of 16 values, each with the first 8 in the lower nibbles, the others in the upper ones."""
    layout = LAYOUTS[name]
    head, sub, tile_bytes, codes = layout.head, layout.sub_bytes, layout.tile_bytes, layout.codes_at

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        o += head
        d = _unsigned_e4m3(words16(s, stride, rows))
        for i in range(2):
            q = o + sub * i + 16 * g
            st_b16(q, to_b16(d))
            st_b16(q + 64, to_b16(shr(d, 8)))
            d = shr(d, 16)
            a, b, c, e = words4(s + 4 + 16 * i, stride, rows)
            p = o + sub * i + codes + tile_bytes * g
            nibble_words((a, b, shr(a, 4), shr(b, 4)), (c, e, shr(c, 4), shr(e, 4)), False, p)

    return tile
