"""Matrices that each row chooses for itself: a row's experts, one column at a time, so that a row never depends on the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localllm.backends.cpu.arguments_matmul import EXPERTS
from localllm.backends.cpu.kernels.floats import group_of as floats_group
from localllm.backends.cpu.kernels.groups import group_of
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import stack
from localllm.backends.cpu.kernels.vec import fma, ld_f, ld_f32, ld_i64, sp_f, st_f
from localllm.backends.cpu.layout import FLOATS, GROUP, LAYOUTS

_W, _EXPERT_BYTES, _RECORDS, _X, _X_BYTES, _IDS, _WEIGHTS, _USED, _ZEROS, _OUT, _OUT_STRIDE, _GROUPS, _ROWS = EXPERTS.offsets


def _column(name: str) -> tuple[Any, int]:
    """(w, records, x, x_bytes, init, init_stride, out, out_stride) for 64 rows x one column; bytes of 64 rows of one record."""
    if name in FLOATS:
        return floats_group(name, 1), GROUP * FLOATS[name]
    return group_of(LAYOUTS[name], 1), LAYOUTS[name].record_bytes


def rows(name: str) -> Callable[..., None]:
    """Kernel: every chosen expert times the row that chose it; a piece of work is 64 outputs of one slot of a row."""
    column, record = _column(name)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        used, groups, records = ld_i64(args + _USED), ld_i64(args + _GROUPS), ld_i64(args + _RECORDS)
        count = ld_i64(ld_i64(args + _ROWS)) * used * groups
        x_bytes = ld_i64(args + _X_BYTES)
        i = take(counter)
        while i < count:
            slot, g = i // groups, i % groups
            expert = ld_i64(ld_i64(args + _IDS) + 8 * slot)
            w = ld_i64(args + _W) + expert * ld_i64(args + _EXPERT_BYTES) + g * records * record
            x = ld_i64(args + _X) + slot // used * x_bytes
            out = ld_i64(args + _OUT) + slot * ld_i64(args + _OUT_STRIDE) + 256 * g
            column(w, records, x, x_bytes, ld_i64(args + _ZEROS), 0, out, 0)
            i = take(counter)

    return run


def total(name: str) -> Callable[..., None]:
    """Kernel: the sum over a row's experts, each times the row's slot for it and its weight, in the order of rank; a piece of work is 64
    outputs of a row."""
    column, record = _column(name)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        used, groups, records = ld_i64(args + _USED), ld_i64(args + _GROUPS), ld_i64(args + _RECORDS)
        count = ld_i64(ld_i64(args + _ROWS)) * groups
        x_bytes = ld_i64(args + _X_BYTES)
        y = stack(256)
        i = take(counter)
        while i < count:
            t, g = i // groups, i % groups
            out = ld_i64(args + _OUT) + t * ld_i64(args + _OUT_STRIDE) + 256 * g
            for k in range(0, 256, 64):
                st_f(out + k, ld_f(ld_i64(args + _ZEROS)))
            for slot in range(t * used, t * used + used):
                expert = ld_i64(ld_i64(args + _IDS) + 8 * slot)
                w = ld_i64(args + _W) + expert * ld_i64(args + _EXPERT_BYTES) + g * records * record
                column(w, records, ld_i64(args + _X) + slot * x_bytes, x_bytes, ld_i64(args + _ZEROS), 0, y, 0)
                weight = sp_f(ld_f32(ld_i64(args + _WEIGHTS) + 4 * slot))
                for k in range(0, 256, 64):
                    st_f(out + k, fma(ld_f(y + k), weight, ld_f(out + k)))
            i = take(counter)

    return run
