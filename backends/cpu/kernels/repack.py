"""Rows of the file to the packed form of layout.py: one call packs any number of rows.

All is done on words of 16 rows side by side (transpose.py). Rows that are not there up to a multiple of 16 get scales, or else codes, of
zero; the tiles behind them are not written, and lie in memory that is zero from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localllm.backends.cpu.arguments_matmul import REPACK
from localllm.backends.cpu.kernels import repack_bits, repack_blocks, repack_grids, repack_k
from localllm.backends.cpu.kernels.repack_parts import st_half
from localllm.backends.cpu.kernels.transpose import halves16, words16
from localllm.backends.cpu.kernels.vec import ld_i64, st_i
from localllm.backends.cpu.layout import FLOATS, LAYOUTS

_SRC, _ROW_BYTES, _ROWS, _RECORDS, _DST = REPACK.offsets
_PACKERS: dict[str, Callable[[str], Any]] = {
    "Q4_K": repack_k.q4_k,
    "Q5_K": repack_k.q5_k,
    "Q6_K": repack_k.q6_k,
    "IQ4_XS": repack_k.iq4_xs,
    "Q2_K": repack_k.q2_k,
    "Q3_K": repack_k.q3_k,
    "TQ1_0": repack_bits.tq1_0,
    "TQ2_0": repack_bits.tq2_0,
    "Q1_0": repack_bits.q1_0,
    "Q2_0": repack_bits.q2_0,
    "MXFP4": repack_blocks.mxfp4,
    "NVFP4": repack_blocks.nvfp4,
    "IQ1_S": repack_grids.iq1_s,
    "IQ1_M": repack_grids.iq1_m,
    "IQ2_XXS": repack_grids.iq2_xxs,
    "IQ2_XS": repack_grids.iq2_xs,
    "IQ2_S": repack_grids.iq2_s,
    "IQ3_XXS": repack_grids.iq3_xxs,
    "IQ3_S": repack_grids.iq3_s,
}


def pack(name: str) -> Callable[..., None]:
    """Kernel: rows of blocks, in tiles of 16."""
    layout = LAYOUTS[name]
    tile = _PACKERS.get(name, repack_blocks.half_blocks)(name)
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
                    st_half(o, halves16(s, stride, rows))
                s += size
                o += 64 * size

    return run
