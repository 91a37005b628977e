"""Rows of the file to the packed form of layout.py: one call packs any number of rows.

All is done on words of 16 rows side by side (transpose.py), 4 values or 4 scales in each lane. Rows that are not
there up to a multiple of 16 get scales of zero; the tiles behind them are not written, and lie in memory that is zero from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import int32

from localllm.backends.cpu.arguments_matmul import REPACK
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import HALVES
from localllm.backends.cpu.kernels.tile import tile_store
from localllm.backends.cpu.kernels.transpose import bytes16, halves16, words4, words16
from localllm.backends.cpu.kernels.vec import as_bytes, bits_f, ld_i64, shl, shr, sp_i, st_b, st_b16, st_f, st_i, storer, to_b16
from localllm.backends.cpu.layout import FLOATS, LAYOUTS

_SRC, _ROW_BYTES, _ROWS, _RECORDS, _DST, _SCALES, _MINS = REPACK.offsets
_st_half = storer(HALVES)


def pack(name: str) -> Callable[..., None]:
    """Kernel: rows of a format of its own, in tiles of 16."""
    layout = LAYOUTS[name]
    tile = (_PACKERS.get(name) or _blocks)(name)
    file_bytes, record = layout.file_bytes, layout.record_bytes

    def run(args: int, state: int, counter: int, thread: int) -> None:
        stride, records = ld_i64(args + _ROW_BYTES), ld_i64(args + _RECORDS)
        for first in range(0, ld_i64(args + _ROWS), 16):
            rows = ld_i64(args + _ROWS) - first
            s = ld_i64(args + _SRC) + first * stride
            o = ld_i64(args + _DST) + first // 64 * records * record
            for _ in range(records):
                tile(s, stride, rows, o, first // 16 % 4)
                s += file_bytes
                o += record

    return run


def _quants(codes: str, tile_bytes: int) -> Any:
    """(q, high, stride, rows, o): values of the block formats; q: address of the nibbles or bytes in row 0, high: of the fifth bits."""

    @helper
    def quants(q: int, high: int, stride: int, rows: int, o: int) -> None:
        if codes == "byte":
            flip = sp_i(int32(-0x7F7F7F80))
            for i in range(2):
                a, b, c, d = words4(q + 16 * i, stride, rows)
                tile_store(o + 256 * i, 64, (a ^ flip, b ^ flip, c ^ flip, d ^ flip))
            return
        tile_store(o, 64, words4(q, stride, rows))
        if codes == "five":
            one = sp_i(int32(0x01010101))
            spread = sp_i(int32(0x00204081))
            low = sp_i(int32(15))
            bits = words16(high, stride, rows)
            plane = bits - bits
            for _ in range(8):  # nibble t of the file's bits: bit t of 4 bytes
                plane = shr(plane, 1) | shl(((bits & low) * spread) & one, 7)
                bits = shr(bits, 4)
            st_i(o + 256, plane)

    return quants


def _blocks(name: str) -> Any:
    layout = LAYOUTS[name]
    quants, tile_bytes, mins = _quants(layout.codes, layout.tile_bytes), layout.tile_bytes, layout.mins
    high = 2 + 2 * mins
    q = high + (4 if layout.codes == "five" else 0)

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        quants(s + q, s + high, stride, rows, o + tile_bytes * g)
        _st_half(o + 4 * tile_bytes + 32 * g, halves16(s, stride, rows))
        if mins:
            _st_half(o + 4 * tile_bytes + 128 + 32 * g, halves16(s + 2, stride, rows))

    return tile


@helper
def _nibble_sub(low: Any, high: Any, shifted: bool, o: int) -> None:
    """Nibbles of 32 values from the file's words of their first and last 16: the lower ones, or the upper."""
    m = sp_i(int32(0x0F0F0F0F))
    for t in range(4):
        a = low[t]
        b = high[t]
        if shifted:
            a = shr(a, 4)
            b = shr(b, 4)
        st_i(o + 64 * t, (a & m) | shl(b & m, 4))


@helper
def _byte_scales(words: Any, o: int, step: int) -> None:
    """Byte k of 16 words: 16 bytes at o + k*step."""
    st_b16(o, to_b16(words))
    st_b16(o + step, to_b16(shr(words, 8)))
    st_b16(o + 2 * step, to_b16(shr(words, 16)))
    st_b16(o + 3 * step, to_b16(shr(words, 24)))


def _super_scales(name: str) -> Any:
    """(s, stride, rows, o, g): d, dmin and the 6-bit scales and mins of Q4_K and Q5_K."""
    layout = LAYOUTS[name]
    sub, at = layout.sub_bytes, layout.head + 4 * layout.tile_bytes

    @helper
    def scales(s: int, stride: int, rows: int, o: int, g: int) -> None:
        _st_half(o + 32 * g, halves16(s, stride, rows))
        _st_half(o + 128 + 32 * g, halves16(s + 2, stride, rows))
        m6 = sp_i(int32(0x3F3F3F3F))
        m4 = sp_i(int32(0x0F0F0F0F))
        m2 = sp_i(int32(0x30303030))
        a = words16(s + 4, stride, rows)
        b = words16(s + 8, stride, rows)
        c = words16(s + 12, stride, rows)
        q = o + at + 16 * g
        _byte_scales(a & m6, q, sub)
        _byte_scales(b & m6, q + 64, sub)
        _byte_scales((c & m4) | (shr(a, 2) & m2), q + 4 * sub, sub)
        _byte_scales((shr(c, 4) & m4) | (shr(b, 2) & m2), q + 4 * sub + 64, sub)

    return scales


def _q4_k(name: str) -> Any:
    layout = LAYOUTS[name]
    scales, head, sub, tile_bytes = _super_scales(name), layout.head, layout.sub_bytes, layout.tile_bytes

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        scales(s, stride, rows, o, g)
        o += head + tile_bytes * g
        for p in range(4):
            low = words4(s + 16 + 32 * p, stride, rows)
            high = words4(s + 32 + 32 * p, stride, rows)
            _nibble_sub(low, high, False, o)
            _nibble_sub(low, high, True, o + sub)
            o += 2 * sub

    return tile


@helper
def _plane(low: Any, high: Any, j: int) -> Any:
    """Bit j of 32 bytes, given as 8 words: bit t of the result's bytes is word t's."""
    one = sp_i(int32(0x01010101))
    for _ in range(j):
        low = (shr(low[0], 1), shr(low[1], 1), shr(low[2], 1), shr(low[3], 1))
        high = (shr(high[0], 1), shr(high[1], 1), shr(high[2], 1), shr(high[3], 1))
    a = (low[0] & one) | shl(low[1] & one, 1) | shl(low[2] & one, 2) | shl(low[3] & one, 3)
    return a | shl(high[0] & one, 4) | shl(high[1] & one, 5) | shl(high[2] & one, 6) | shl(high[3] & one, 7)


def _q5_k(name: str) -> Any:
    layout = LAYOUTS[name]
    scales, head, sub, tile_bytes = _super_scales(name), layout.head, layout.sub_bytes, layout.tile_bytes

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        scales(s, stride, rows, o, g)
        o += head + tile_bytes * g
        high_a = words4(s + 16, stride, rows)
        high_b = words4(s + 32, stride, rows)
        for p in range(4):
            low = words4(s + 48 + 32 * p, stride, rows)
            high = words4(s + 64 + 32 * p, stride, rows)
            _nibble_sub(low, high, False, o)
            _nibble_sub(low, high, True, o + sub)
            st_i(o + 256, _plane(high_a, high_b, 2 * p))
            st_i(o + sub + 256, _plane(high_a, high_b, 2 * p + 1))
            o += 2 * sub

    return tile


@helper
def _pairs(words: Any, k: int) -> Any:
    """Bits 2k, 2k+1 of 16 bytes, given as 4 words: bits 2t, 2t+1 of the result's bytes are word t's."""
    two = sp_i(int32(0x03030303))
    a, b, c, d = words
    for _ in range(k):
        a, b, c, d = shr(a, 2), shr(b, 2), shr(c, 2), shr(d, 2)
    return (a & two) | shl(b & two, 2) | shl(c & two, 4) | shl(d & two, 6)


def _q6_k(name: str) -> Any:
    layout = LAYOUTS[name]
    head, sub, tile_bytes, at = layout.head, layout.sub_bytes, layout.tile_bytes, 4 * layout.tile_bytes

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        _st_half(o + 32 * g, halves16(s + 208, stride, rows))
        q = o + head + at + 16 * g
        for j in range(8):  # two scales of 16 values in each sub-record
            st_b16(q + sub * j, bytes16(s + 192 + 2 * j, stride, rows))
            st_b16(q + sub * j + 64, bytes16(s + 193 + 2 * j, stride, rows))
        o += head + tile_bytes * g
        for h in range(2):
            high_a = words4(s + 128 + 32 * h, stride, rows)
            high_b = words4(s + 144 + 32 * h, stride, rows)
            for k in range(4):  # values 32k of the half: k odd from the second 32 bytes, k > 1 from the upper nibbles
                at_q = s + 64 * h + 32 * (k & 1)
                _nibble_sub(words4(at_q, stride, rows), words4(at_q + 16, stride, rows), k > 1, o)
                st_i(o + 256, _pairs(high_a, k))
                st_i(o + 320, _pairs(high_b, k))
                o += sub

    return tile


def _iq4_xs(name: str) -> Any:
    layout = LAYOUTS[name]
    head, sub, tile_bytes, at = layout.head, layout.sub_bytes, layout.tile_bytes, 4 * layout.tile_bytes

    @helper
    def tile(s: int, stride: int, rows: int, o: int, g: int) -> None:
        _st_half(o + 32 * g, halves16(s, stride, rows))
        top = shr(words16(s, stride, rows), 16)
        low = words16(s + 4, stride, rows)
        m4, m2, k32 = sp_i(int32(15)), sp_i(int32(3)), sp_i(int32(32))
        q = o + head + at + 16 * g
        for j in range(8):
            st_b16(q + sub * j, to_b16(((low & m4) | shl(top & m2, 4)) - k32))
            low = shr(low, 4)
            top = shr(top, 2)
        o += head + tile_bytes * g
        for j in range(8):
            tile_store(o + sub * j, 64, words4(s + 8 + 16 * j, stride, rows))

    return tile


_PACKERS = {"Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_XS": _iq4_xs}


def shared(name: str) -> Callable[..., None]:
    """Kernel: rows of X8 or X8M, from int8 codes and float32 scales (and minima) of 16 values."""
    layout = LAYOUTS[name]
    record, mins, at = layout.record_bytes, layout.mins, 2048

    def run(args: int, state: int, counter: int, thread: int) -> None:
        stride, blocks = ld_i64(args + _ROW_BYTES), ld_i64(args + _RECORDS)
        plus = as_bytes(sp_i(int32(0x40404040)))
        for first in range(0, ld_i64(args + _ROWS), 16):
            rows = ld_i64(args + _ROWS) - first
            s = ld_i64(args + _SRC) + first * stride
            d = ld_i64(args + _SCALES) + first * 8 * blocks
            m = ld_i64(args + _MINS) + first * 8 * blocks
            o = ld_i64(args + _DST) + first // 64 * blocks * record + first // 16 % 4 * 64
            for _ in range(blocks):
                for i in range(2):
                    w = words4(s + 16 * i, stride, rows)
                    for t in range(4):
                        st_b(o + first // 16 % 4 * 448 + 256 * i + 64 * t, as_bytes(w[t]) + plus)
                st_i(o + at, words16(d, 8 * blocks, rows))
                st_i(o + at + 256, words16(d + 4, 8 * blocks, rows))
                if mins:
                    last = bits_f(words16(m + 4, 8 * blocks, rows))
                    st_f(o + at + 512, bits_f(words16(m, 8 * blocks, rows)) - last)
                    st_f(o + at + 768, last)
                s += 32
                d += 8
                m += 8
                o += record

    return run


def floats(name: str) -> Callable[..., None]:
    """Kernel: rows of floats to columns side by side; missing rows are zeros."""
    size = FLOATS[name]

    def run(args: int, state: int, counter: int, thread: int) -> None:
        stride, columns = ld_i64(args + _ROW_BYTES), ld_i64(args + _RECORDS)
        for first in range(0, ld_i64(args + _ROWS), 16):
            rows = ld_i64(args + _ROWS) - first
            s = ld_i64(args + _SRC) + first * stride
            o = ld_i64(args + _DST) + (first // 64 * columns * 64 + first % 64) * size
            for _ in range(columns):
                if size == 4:
                    st_i(o, words16(s, stride, rows))
                else:
                    _st_half(o, halves16(s, stride, rows))
                s += size
                o += 64 * size

    return run
