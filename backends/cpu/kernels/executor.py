"""The loops that walk a tape: one for the calling thread, which comes back between rows, and one for the workers, which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import I64
from localllm.backends.cpu.kernels.sync import atomic_add, atomic_load, atomic_store, barrier, pause, sleep_on, wake_all
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
    STOP,
    TAPE_WORDS,
)

_ROW = 8 * TAPE_WORDS
_IDLE_SPIN = 20000


@intrinsic
def _call(typing: Any, function: Any, args: Any, state: Any, counter: Any, thread: Any) -> Any:
    def generate(context: Any, b: Any, sig: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
        b.call(b.inttoptr(values[0], kind.as_pointer()), values[1:])
        return context.get_dummy_value()

    return types.none(*[types.int64] * 5), generate


@helper
def _walk(sync: int, job: int, first: int, last: int, thread: int) -> None:
    row = ld_i64(sync + 8 * JOB_TAPE) + _ROW * first
    state = ld_i64(sync + 8 * JOB_STATE)
    threads = ld_i64(sync + 8 * JOB_THREADS)
    for _ in range(first, last):
        _call(ld_i64(row + 8 * FUNCTION), ld_i64(row + 8 * ARGS), state, ld_i64(row + 8 * COUNTER), thread)
        if ld_i64(row + 8 * BARRIER) != 0:
            barrier(sync, threads)
            if atomic_load(sync + 8 * ABORTED) == job:
                return
        row += _ROW


def post() -> Callable[..., None]:
    """Start a job: copies its four words from ``words`` and wakes the workers, who begin with row 0."""

    def run(sync: int, words: int, c: int, d: int) -> None:
        atomic_add(sync + 8 * JOB, 1)  # odd: a worker that looks now looks again
        for i in range(4):
            st_i64(sync + 8 * (JOB_TAPE + i), ld_i64(words + 8 * i))
        st_i64(sync + 8 * DONE, 0)
        atomic_add(sync + 8 * JOB, 1)
        if atomic_load(sync + 8 * IDLE) != 0:
            wake_all(sync + 8 * JOB)

    return run


def rows() -> Callable[..., None]:
    """The caller's share of rows first..last of the posted job. ``last`` is the end, or follows a row with a barrier."""

    def run(sync: int, first: int, last: int, d: int) -> None:
        _walk(sync, atomic_load(sync + 8 * JOB), first, last, 0)
        st_i64(sync + 8 * DONE, last if last < ld_i64(sync + 8 * JOB_ROWS) else -1)

    return run


def leave() -> Callable[..., None]:
    """The caller gives a job up between two rows: the workers are let out of the next barrier."""

    def run(sync: int, b: int, c: int, d: int) -> None:
        atomic_store(sync + 8 * ABORTED, atomic_load(sync + 8 * JOB))
        barrier(sync, ld_i64(sync + 8 * JOB_THREADS))
        st_i64(sync + 8 * DONE, -1)

    return run


def stop() -> Callable[..., None]:
    """The workers return."""

    def run(sync: int, b: int, c: int, d: int) -> None:
        atomic_store(sync + 8 * STOP, 1)
        atomic_add(sync + 8 * JOB, 2)
        wake_all(sync + 8 * JOB)

    return run


@helper
def _next_job(sync: int, seen: int) -> Any:
    for _ in range(_IDLE_SPIN):
        job = atomic_load(sync + 8 * JOB)
        if job != seen and job & 1 == 0:
            return job
        pause()
    atomic_add(sync + 8 * IDLE, 1)
    job = atomic_load(sync + 8 * JOB)
    while job == seen or job & 1 != 0:
        sleep_on(sync + 8 * JOB, job & 0xFFFFFFFF)
        job = atomic_load(sync + 8 * JOB)
    atomic_add(sync + 8 * IDLE, -1)
    return job


def serve() -> Callable[..., None]:
    """The life of a worker: wait for a job, walk its tape, until told to stop. ``seen``: the number of the job before the first."""

    def run(sync: int, thread: int, seen: int, d: int) -> None:
        while True:
            job = _next_job(sync, seen)
            if atomic_load(sync + 8 * STOP) != 0:
                return
            takes_part = thread < ld_i64(sync + 8 * JOB_THREADS)
            last = ld_i64(sync + 8 * JOB_ROWS)
            if atomic_load(sync + 8 * JOB) != job:
                continue  # already the next one: this one did not need us
            if takes_part:
                _walk(sync, job, 0, last, thread)
            seen = job

    return run
