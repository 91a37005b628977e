"""How threads meet: atomics, sleeping on a word, and the barrier."""

from __future__ import annotations

import platform
import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import I32, I64, call, pointer
from localllm.backends.cpu.records import ARRIVED, PHASE, SLEEPERS

SPIN = 3000
"""Pauses before a thread sleeps in a barrier, about 40 microseconds: more only hurts where another process wants the core."""

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129
_ULOCK, _ULOCK_ALL = 1, 0x100


def _simple(result: Any, arguments: tuple[Any, ...], emit: Any) -> Any:
    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        value = emit(b, *args)
        return context.get_dummy_value() if result is types.none else value

    return result(*arguments), generate


@intrinsic
def atomic_add(typing: Any, address: Any, value: Any) -> Any:
    """Adds; the old value."""
    return _simple(types.int64, (types.int64, types.int64), lambda b, p, v: b.atomic_rmw("add", pointer(b, p, I64), v, "seq_cst"))


@intrinsic
def atomic_load(typing: Any, address: Any) -> Any:
    """Reads, with acquire order."""
    return _simple(types.int64, (types.int64,), lambda b, p: b.load_atomic(pointer(b, p, I64), "acquire", 8))


@intrinsic
def atomic_store(typing: Any, address: Any, value: Any) -> Any:
    """Writes, with release order."""
    return _simple(types.none, (types.int64, types.int64), lambda b, p, v: b.store_atomic(v, pointer(b, p, I64), "release", 8))


@intrinsic
def full_fence(typing: Any) -> Any:
    """Nothing that stands behind it is done before what stands in front of it: also not a load before a store."""
    return _simple(types.none, (), lambda b: b.fence("seq_cst"))


@intrinsic
def pause(typing: Any) -> Any:
    """A hint that this is a waiting loop."""

    def emit(b: Any) -> None:
        if platform.machine().lower() in ("x86_64", "amd64"):
            call(b, "llvm.x86.sse2.pause", ir.VoidType(), [])
        elif platform.machine().lower() in ("aarch64", "arm64"):
            call(b, "llvm.aarch64.hint", ir.VoidType(), [ir.Constant(I32, 1)])

    return _simple(types.none, (), emit)


def _syscall(b: Any, *arguments: Any) -> None:
    kind = ir.FunctionType(I64, [I64], var_arg=True)
    b.call(cgutils.get_or_insert_function(b.module, kind, "syscall"), arguments)


def _number(value: int, kind: Any = I64) -> Any:
    return ir.Constant(kind, value)


@intrinsic
def sleep_on(typing: Any, address: Any, value: Any) -> Any:
    """Sleep while the lower 32 bits at the address are ``value``; may wake for no reason."""

    def emit(b: Any, p: Any, v: Any) -> None:
        if _FUTEX is not None:
            _syscall(b, _number(_FUTEX), p, _number(_FUTEX_WAIT), v, _number(0), _number(0), _number(0))
        elif sys.platform == "darwin":
            call(b, "__ulock_wait", I32, [_number(_ULOCK, I32), p, v, _number(0, I32)])
        elif sys.platform == "win32":
            cell = cgutils.alloca_once_value(b, b.trunc(v, I32))
            call(b, "WaitOnAddress", I32, [p, b.ptrtoint(cell, I64), _number(4), _number(-1, I32)])
        else:
            call(b, "sched_yield", I32, [])

    return _simple(types.none, (types.int64, types.int64), emit)


@intrinsic
def wake_all(typing: Any, address: Any) -> Any:
    """Wake all who sleep on the address."""

    def emit(b: Any, p: Any) -> None:
        if _FUTEX is not None:
            _syscall(b, _number(_FUTEX), p, _number(_FUTEX_WAKE), _number(1 << 30), _number(0), _number(0), _number(0))
        elif sys.platform == "darwin":
            call(b, "__ulock_wake", I32, [_number(_ULOCK | _ULOCK_ALL, I32), p, _number(0)])
        elif sys.platform == "win32":
            call(b, "WakeByAddressAll", ir.VoidType(), [p])

    return _simple(types.none, (types.int64,), emit)


@helper
def take(counter: int) -> Any:
    """The next piece of a row's work."""
    return atomic_add(counter, 1)


@helper
def span(k: int, pieces: int, threads: int) -> Any:
    """Pieces first..last-1 of work that lies in a row in memory: the k-th of spans that get smaller, so that threads read on for long and
    still end together. A thread begins with the one of its own number; the counter gives out those behind. (pieces, pieces) at the end."""
    first = 0
    for _ in range(k):
        first += max(1, (pieces - first) // (2 * threads))
    first = min(first, pieces)
    return first, first + min(max(1, (pieces - first) // (2 * threads)), pieces - first)


@helper
def barrier(sync: int, threads: int) -> None:
    """All threads of the job meet."""
    if threads == 1:
        return
    phase = atomic_load(sync + 8 * PHASE)
    if atomic_add(sync + 8 * ARRIVED, 1) == threads - 1:
        atomic_store(sync + 8 * ARRIVED, 0)
        atomic_add(sync + 8 * PHASE, 1)
        full_fence()  # either we see the sleeper, or it sees the new phase
        if atomic_load(sync + 8 * SLEEPERS) != 0:
            wake_all(sync + 8 * PHASE)
        return
    for _ in range(SPIN):
        if atomic_load(sync + 8 * PHASE) != phase:
            return
        pause()
    atomic_add(sync + 8 * SLEEPERS, 1)  # somebody has lost the processor: give this one away
    full_fence()
    while atomic_load(sync + 8 * PHASE) == phase:
        sleep_on(sync + 8 * PHASE, phase & 0xFFFFFFFF)
    atomic_add(sync + 8 * SLEEPERS, -1)
