"""Rows by number: of the embedding matrix, from its packed form, and of a register."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import float32, int32

from localllm.backends.cpu.arguments_matmul import EMBED, GATHER
from localllm.backends.cpu.kernels.floats import loader_of
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.matmul import unpacker_of
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import stack
from localllm.backends.cpu.kernels.vec import float_of, ld_f, ld_f32, ld_i32, ld_i64, ld_u8, st_f, st_f32
from localllm.backends.cpu.layout import FLOATS, LAYOUTS
from localllm.backends.cpu.records import ROWS, TOKENS, WANT, WANTED

_W, _RECORDS, _SCALE, _OUT, _OUT_STRIDE = EMBED.offsets
_GX, _GX_STRIDE, _GOUT, _GOUT_STRIDE, _GBYTES = GATHER.offsets


def _block_row(name: str) -> Any:
    """(w, records, token, scale, out): one row of a packed matrix to float32."""
    layout = LAYOUTS[name]
    record, head, sub, subs, at = layout.record_bytes, layout.head, layout.sub_bytes, layout.qk // 32, 512 + 64 * (1 + layout.halves)
    code_offset, halves, mins = layout.offset, layout.halves, layout.mins
    unpack = unpacker_of(layout)

    @helper
    def row(w: int, records: int, token: int, scale: float, out: int) -> None:
        u = stack(768)
        lane = token % 16
        w += token // 64 * records * record
        for _ in range(records):
            for s in range(subs):
                unpack(w + head + s * sub, w, token // 16 % 4, u)
                for i in range(32):
                    half = 64 * (i // 16) if halves else 0
                    q = ld_u8(u + 64 * (i // 4) + 4 * lane + i % 4) - code_offset
                    v = float32(q) * ld_f32(u + 512 + half + 4 * lane)
                    if mins:
                        m = ld_f32(u + at + 4 * lane)
                        if halves:  # stored: the first half's m less the last's, and the last's
                            last = ld_f32(u + at + 64 + 4 * lane)
                            m = m + last if i < 16 else last
                        v = v + m
                    st_f32(out + 4 * i, v * scale)
                out += 128
            w += record

    return row


def _float_row(name: str) -> Any:
    size, fetch = FLOATS[name], loader_of(name)

    @helper
    def row(w: int, columns: int, token: int, scale: float, out: int) -> None:
        u = stack(64)
        w += (token // 64 * columns * 64 + token % 64 // 16 * 16) * size
        for k in range(columns):
            st_f(u, fetch(w))
            st_f32(out + 4 * k, ld_f32(u + 4 * (token % 16)) * scale)
            w += 64 * size

    return row


def rows(name: str) -> Callable[..., None]:
    """Kernel: the embedding of every token of the batch; a piece of work is a row."""
    row = _float_row(name) if name in FLOATS else _block_row(name)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        count = ld_i64(state + 8 * ROWS)
        scale = float_of(int32(ld_i32(args + _SCALE)))
        i = take(counter)
        while i < count:
            token = ld_i64(ld_i64(state + 8 * TOKENS) + 8 * i)
            row(ld_i64(args + _W), ld_i64(args + _RECORDS), token, scale, ld_i64(args + _OUT) + i * ld_i64(args + _OUT_STRIDE))
            i = take(counter)

    return run


def gather() -> Callable[..., None]:
    """Kernel: the wanted rows of a register; a piece of work is a row."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        count = ld_i64(state + 8 * WANTED)
        i = take(counter)
        while i < count:
            x = ld_i64(args + _GX) + ld_i64(ld_i64(state + 8 * WANT) + 8 * i) * ld_i64(args + _GX_STRIDE)
            out = ld_i64(args + _GOUT) + i * ld_i64(args + _GOUT_STRIDE)
            for b in range(0, ld_i64(args + _GBYTES), 64):
                st_f(out + b, ld_f(x + b))
            i = take(counter)

    return run
