"""How many threads, and the team that runs tapes: one per process, shared by all models."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.arena import words
from localllm.backends.cpu.kernel_cache import KernelId, kernels
from localllm.backends.cpu.records import DONE, JOB, SYNC_WORDS
from localllm.errors import BackendError

KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
"""A kernel as Python calls it: the interpreter lock is released meanwhile."""
_EXECUTOR: list[KernelId] = [("executor", name) for name in ("post", "rows", "leave", "stop", "serve")]
_SLICE = 0.15
"""Seconds that a call may keep the caller before it looks for signals."""


def default_threads() -> int:
    """One thread for each physical core that this process may use: affinity and the control group's quota count."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    cores = {_core(cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota()))


def _core(cpu: int) -> object:
    if sys.platform != "linux":
        return cpu
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return cpu


def _quota() -> int:
    """Whole processors that the control group grants; many where it says nothing."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(quota) // int(period)) if quota != "max" else 1 << 16
    except (OSError, ValueError):
        pass
    try:
        base = Path("/sys/fs/cgroup/cpu")
        quota_us = int((base / "cpu.cfs_quota_us").read_text())
        return max(1, quota_us // int((base / "cpu.cfs_period_us").read_text())) if quota_us > 0 else 1 << 16
    except (OSError, ValueError):
        return 1 << 16


class Team:
    """Threads that stay inside one compiled loop, without the interpreter lock, and sleep in the system between jobs."""

    def __init__(self) -> None:
        found = kernels().addresses(_EXECUTOR)
        self._post, self._rows, self._leave, self._stop, self._serve = (KERNEL(found[i]) for i in _EXECUTOR)
        self._sync = words(SYNC_WORDS)
        self._sync[DONE] = -1
        self._job = words(8)
        self._size = 1
        self._lock = threading.Lock()
        self._dead = False

    def run(self, tape: NDArray[np.int64], state: NDArray[np.int64], threads: int, pace: Pace, work: int) -> None:
        """Walk a whole tape (rows of four words, the last with a barrier) with so many threads, this one among them.

        ``work``: rows of the batch. Signals are looked for at least every quarter of a second; an exception from a handler ends the job
        between two rows.
        """
        with self._lock:
            if self._dead:
                raise BackendError("this process was forked from one that had loaded a model; load models after the fork")
            self._finish()
            self._grow(threads)
            self._job[:4] = tape.ctypes.data, len(tape), state.ctypes.data, threads
            sync = self._sync.ctypes.data
            started = time.perf_counter()
            try:
                self._post(sync, self._job.ctypes.data, 0, 0)
                row = 0
                while row < len(tape):
                    end = pace.next(row, work)
                    self._rows(sync, row, end, 0)
                    row = end
            finally:
                self._finish()
            pace.took(time.perf_counter() - started, work)

    def _finish(self) -> None:
        """Give up what is left of a job: the kernels have noted how far it came, since an interrupt may fall between any two lines here."""
        if self._sync[DONE] >= 0:
            self._leave(self._sync.ctypes.data, 0, 0, 0)

    def _grow(self, threads: int) -> None:
        while self._size < threads:
            number, sync, serve = self._size, self._sync, self._serve
            seen = int(sync[JOB])
            worker = threading.Thread(target=lambda: serve(sync.ctypes.data, number, seen, 0), daemon=True, name=f"localllm-{number}")  # noqa: B023
            worker.start()
            self._size += 1

    def abandon(self) -> None:
        """In a forked child the workers are not there."""
        self._dead = True


class Pace:
    """Cuts one tape into calls of at most _SLICE seconds, by how long it took before; cuts lie behind barriers."""

    def __init__(self, barriers: Sequence[bool]) -> None:
        assert barriers[-1]
        self._cuts = [i + 1 for i, barrier in enumerate(barriers) if barrier]
        self._index = dict(zip([0, *self._cuts], range(len(self._cuts)), strict=False))
        self._seconds = float("inf")

    def next(self, row: int, work: int) -> int:
        """The row to stop before."""
        step = max(1, int(len(self._cuts) * _SLICE / max(self._seconds * work, 1e-6)))
        return self._cuts[min(self._index[row] + step, len(self._cuts)) - 1]

    def took(self, seconds: float, work: int) -> None:
        """How long the whole tape took for so many rows."""
        self._seconds = seconds / work


class Stopwatch(Pace):
    """Stops behind every barrier of a tape, and adds up in ``profile`` the seconds of the rows between two of them, by their kinds."""

    def __init__(self, pace: Pace, kinds: Sequence[str], profile: dict[str, float]) -> None:
        self._cuts, self._index, self._seconds = pace._cuts, pace._index, float("inf")
        self._kinds, self._profile = kinds, profile
        self._from, self._since = 0, time.perf_counter()

    def next(self, row: int, work: int) -> int:
        """The row to stop before."""
        self._note(row)
        return super().next(row, work)

    def took(self, seconds: float, work: int) -> None:
        """The tape is done."""
        self._note(len(self._kinds))

    def _note(self, row: int) -> None:
        now = time.perf_counter()
        if row > self._from:
            kind = " + ".join(dict.fromkeys(self._kinds[self._from : row]))
            self._profile[kind] = self._profile.get(kind, 0.0) + now - self._since
        self._from, self._since = row, now


_team: Team | None = None
_lock = threading.Lock()


def team() -> Team:
    """The team of this process."""
    global _team
    with _lock:
        if _team is None:
            _team = Team()
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_after_fork(weakref.ref(_team)))
        return _team


def _after_fork(reference: weakref.ref[Team]) -> Callable[[], None]:
    def mark() -> None:
        if (lost := reference()) is not None:
            lost.abandon()

    return mark
