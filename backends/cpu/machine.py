"""The ceilings of this machine, measured by kernels of ours on the team of threads."""

from __future__ import annotations

import time
from dataclasses import dataclass

from localllm.backends.cpu.arena import Arena, words
from localllm.backends.cpu.arguments_matmul import PEAK
from localllm.backends.cpu.kernel_cache import KernelId, kernels
from localllm.backends.cpu.layout import FEW
from localllm.backends.cpu.lower import Row, assemble
from localllm.backends.cpu.records import SCRATCH, SCRATCH_BYTES, STATE_WORDS
from localllm.backends.cpu.threads import Job, team

_READ: KernelId = ("peaks", "read")
_DOTS: KernelId = ("peaks", "dots")
_MEMORY, _PIECE = 256 << 20, 1 << 20
"""Far more than any cache holds of it, read in pieces."""
_ROUNDS, _PIECES = 20_000, 8
"""Dot products: pieces to a thread, of a few milliseconds each."""
_SCRATCH = 4096


@dataclass(frozen=True, slots=True)
class Ceilings:
    """``read_gbps``: GB/s of sums over memory; ``int8_gmacs``: 10^9 multiply-adds of bytes a second."""

    read_gbps: float
    int8_gmacs: float


class Meter:
    """Measures both with so many threads. Memory is taken and touched once, so that measurements can be repeated between others."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._arena = Arena(_MEMORY + threads * _SCRATCH)
        self._memory = self._arena.take(_MEMORY)
        self._memory[:] = 1
        self._state = words(STATE_WORDS)
        self._state[SCRATCH_BYTES] = _SCRATCH
        self._state[SCRATCH] = self._arena.take(threads * _SCRATCH).ctypes.data

    def measure(self) -> Ceilings:
        """Both ceilings now, the better of two tries each: what is asked is what the machine can do, not what it happened to do."""
        read = min(self._time(_READ, _MEMORY // _PIECE) for _ in range(2))
        pieces = _PIECES * self._threads
        dots = min(self._time(_DOTS, pieces) for _ in range(2))
        return Ceilings(_MEMORY / read / 1e9, pieces * _ROUNDS * 16 * 32 * FEW / dots / 1e9)

    def _time(self, kernel: KernelId, pieces: int) -> float:
        record = PEAK.fill(memory=self._memory.ctypes.data, piece=_PIECE, pieces=pieces, rounds=_ROUNDS)
        tape = assemble([Row(kernel, record, [], [])], kernels().addresses([kernel]))
        started = time.perf_counter()
        team().run(Job(tape.rows, tape.counters, self._state, tape.pace), 1, self._threads, (self, tape))
        return time.perf_counter() - started
