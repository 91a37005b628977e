"""What packers are made of besides the movement of transpose.py: bits from the file's places to those of codes.py.

Words are of 16 rows side by side, 4 values or 4 scales in each lane.
"""

from __future__ import annotations

from typing import Any

from numba import int32

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import HALVES
from localllm.backends.cpu.kernels.vec import shl, shr, sp_i, st_b16, st_i, storer, to_b16

st_half = storer(HALVES)
"""Stores 16 halves."""


@helper
def nibble_words(low: Any, high: Any, shifted: bool, o: int) -> None:
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
def byte_scales(words: Any, o: int, step: int) -> None:
    """Byte k of 16 words: 16 bytes at o + k*step."""
    st_b16(o, to_b16(words))
    st_b16(o + step, to_b16(shr(words, 8)))
    st_b16(o + 2 * step, to_b16(shr(words, 16)))
    st_b16(o + 3 * step, to_b16(shr(words, 24)))


@helper
def plane_of(low: Any, high: Any, j: int) -> Any:
    """Bit j of 32 bytes, given as 8 words: bit t of the result's bytes is word t's."""
    one = sp_i(int32(0x01010101))
    for _ in range(j):
        low = (shr(low[0], 1), shr(low[1], 1), shr(low[2], 1), shr(low[3], 1))
        high = (shr(high[0], 1), shr(high[1], 1), shr(high[2], 1), shr(high[3], 1))
    a = (low[0] & one) | shl(low[1] & one, 1) | shl(low[2] & one, 2) | shl(low[3] & one, 3)
    return a | shl(high[0] & one, 4) | shl(high[1] & one, 5) | shl(high[2] & one, 6) | shl(high[3] & one, 7)


@helper
def pairs_of(words: Any, k: int) -> Any:
    """Bits 2k, 2k+1 of 16 bytes, given as 4 words: bits 2t, 2t+1 of the result's bytes are word t's."""
    two = sp_i(int32(0x03030303))
    a, b, c, d = words
    for _ in range(k):
        a, b, c, d = shr(a, 2), shr(b, 2), shr(c, 2), shr(d, 2)
    return (a & two) | shl(b & two, 2) | shl(c & two, 4) | shl(d & two, 6)


@helper
def spread(bits: Any) -> Any:
    """Bits 0-3: bit k to bit 0 of byte k."""
    return ((bits & sp_i(int32(15))) * sp_i(int32(0x00204081))) & sp_i(int32(0x01010101))


@helper
def plane_of_bits(bits: Any) -> Any:
    """32 bits of neighbours: bit 4t + k to bit t of byte k."""
    plane = bits - bits
    for _ in range(8):
        plane = shr(plane, 1) | shl(spread(bits), 7)
        bits = shr(bits, 4)
    return plane
