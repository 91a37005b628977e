"""The loops that walk a tape: one for the calling thread, which comes back between rows, and one for the workers, which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import I64
from localllm.backends.cpu.kernels.sync import atomic_add, atomic_load, atomic_store, barrier, full_fence, pause, sleep_on, wake_all
from localllm.backends.cpu.kernels.vec import ld_i64, st_i64
from localllm.backends.cpu.records import (
    ABORTED,
    ARGS,
    BARRIER,
    COUNTER,
    DONE,
    FUNCTION,
    IDLE,
    JOB,
    JOB_ROWS,
    JOB_STATE,
    JOB_TAPE,
    JOB_THREADS,
    PHASE,
    TAPE_WORDS,
    WORKERS,
)

_ROW = 8 * TAPE_WORDS
_IDLE_SPIN = 20000


@intrinsic
def call_kernel(typing: Any, function: Any, args: Any, state: Any, counter: Any, thread: Any) -> Any:
    """Call the machine code at an address."""

    def generate(context: Any, b: Any, sig: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
        b.call(b.inttoptr(values[0], kind.as_pointer()), values[1:])
        return context.get_dummy_value()

    return types.none(*[types.int64] * 5), generate


@helper
def _walk(sync: int, first: int, last: int, thread: int) -> None:
    row = ld_i64(sync + 8 * JOB_TAPE) + _ROW * first
    state = ld_i64(sync + 8 * JOB_STATE)
    threads = ld_i64(sync + 8 * JOB_THREADS)
    for _ in range(first, last):
        call_kernel(ld_i64(row + 8 * FUNCTION), ld_i64(row + 8 * ARGS), state, ld_i64(row + 8 * COUNTER), thread)
        if ld_i64(row + 8 * BARRIER) != 0:
            phase = atomic_load(sync + 8 * PHASE)  # can't move before this thread arrives, so it names this meeting
            barrier(sync, threads)
            if thread != 0 and atomic_load(sync + 8 * ABORTED) == phase + 1:
                return
        row += _ROW


def post() -> Callable[..., None]:
    """Start a job: copies its four words from ``words`` and wakes the workers, who begin with row 0."""

    def run(sync: int, words: int, c: int, d: int) -> None:
        atomic_add(sync + 8 * JOB, 1)  # odd: a worker that looks now looks again
        full_fence()
        for i in range(4):
            st_i64(sync + 8 * (JOB_TAPE + i), ld_i64(words + 8 * i))
        st_i64(sync + 8 * DONE, 0)
        full_fence()
        atomic_add(sync + 8 * JOB, 1)
        full_fence()
        if atomic_load(sync + 8 * IDLE) != 0:
            wake_all(sync + 8 * JOB)

    return run


def rows() -> Callable[..., None]:
    """The caller's share of rows first..last of the posted job. ``last`` is the end, or follows a row with a barrier."""

    def run(sync: int, first: int, last: int, d: int) -> None:
        _walk(sync, first, last, 0)
        st_i64(sync + 8 * DONE, last if last < ld_i64(sync + 8 * JOB_ROWS) else -1)

    return run


def leave() -> Callable[..., None]:
    """The caller gives a job up between two rows: the workers are let out of the next meeting, which it comes to as well.

    A worker may still be on its way out of the last one: it knows by the phase that this is not meant.
    """

    def run(sync: int, b: int, c: int, d: int) -> None:
        threads = ld_i64(sync + 8 * JOB_THREADS)
        if threads > 1:
            atomic_store(sync + 8 * ABORTED, atomic_load(sync + 8 * PHASE) + 1)
            barrier(sync, threads)
        st_i64(sync + 8 * DONE, -1)

    return run


@helper
def _next_job(sync: int, seen: int) -> Any:
    for _ in range(_IDLE_SPIN):
        job = atomic_load(sync + 8 * JOB)
        if job != seen and job & 1 == 0:
            return job
        pause()
    atomic_add(sync + 8 * IDLE, 1)
    full_fence()
    job = atomic_load(sync + 8 * JOB)
    while job == seen or job & 1 != 0:
        sleep_on(sync + 8 * JOB, job & 0xFFFFFFFF)
        job = atomic_load(sync + 8 * JOB)
    atomic_add(sync + 8 * IDLE, -1)
    return job


def serve() -> Callable[..., None]:
    """The life of a worker: take a number, wait for a job, walk its tape, for ever."""

    def run(sync: int, b: int, c: int, d: int) -> None:
        seen = atomic_load(sync + 8 * JOB)  # before anybody can count on this worker
        full_fence()
        thread = atomic_add(sync + 8 * WORKERS, 1) + 1
        while True:
            job = _next_job(sync, seen)
            takes_part = thread < ld_i64(sync + 8 * JOB_THREADS)
            last = ld_i64(sync + 8 * JOB_ROWS)
            full_fence()
            if atomic_load(sync + 8 * JOB) != job:
                continue  # already the next one: this one did not need us
            if takes_part:
                _walk(sync, 0, last, thread)
            seen = job

    return run
