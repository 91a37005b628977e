"""How many threads, and the team that runs tapes: one per process, shared by all models."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.arena import words
from localllm.backends.cpu.kernel_cache import KernelId, kernels
from localllm.backends.cpu.records import DONE, JOB_TAPE, JOB_THREADS, SYNC_WORDS, THREADS, WORKERS
from localllm.errors import BackendError

KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
"""A kernel as Python calls it: the interpreter lock is released meanwhile."""
_EXECUTOR: list[KernelId] = [("executor", name) for name in ("post", "rows", "leave", "serve")]
_ARRIVAL = 0.1
"""Seconds that new workers are waited for; later ones take part in later jobs."""
_SLICE = 0.15
"""Seconds that a call may keep the caller before it looks for signals."""
_MANY = 1 << 16
"""Processors, where nothing limits them."""


def default_threads() -> int:
    """One thread for each physical core that this process may use: affinity and the control group's quota count."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = {core_of(cpu) for cpu in allowed}
    return max(1, min(len(cores), quota()))


def core_of(cpu: int, devices: Path = Path("/sys/devices/system/cpu")) -> object:
    """What the processors of one physical core have in common; the processor itself where the system doesn't say."""
    try:
        return (devices / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return cpu


def quota(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Whole processors that the control group of this process and those around it grant; many where they say nothing."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    paths = [fields[2].strip("/") for fields in (line.split(":", 2) for line in lines) if len(fields) == 3 and _about_cpu(fields[1])]
    around = {part for path in paths for part in (Path(path), *Path(path).parents)} | {Path()}
    granted = [_granted(folder / part) for folder in (groups, groups / "cpu", groups / "cpu,cpuacct") for part in around]
    return max(1, int(min(granted)))


def _about_cpu(controllers: str) -> bool:
    return not controllers or "cpu" in controllers.split(",")


def _granted(group: Path) -> float:
    """Processors that one group grants: in the words of version 2, or of version 1."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            most, period = " ".join((group / name).read_text() for name in names).split()
            return int(most) / int(period) if most not in ("max", "-1") else _MANY
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return _MANY


class Job:
    """A tape to walk, as often as one likes: its rows (the last with a barrier), their work counters, the state, and how it is cut."""

    def __init__(self, rows: NDArray[np.int64], counters: NDArray[np.int64], state: NDArray[np.int64], pace: Pace) -> None:
        self.rows, self.counters, self.state, self.pace = rows, counters, state, pace
        self.words = words(8)
        """What is posted: tape, rows, state, threads. Addresses are asked for once, since NumPy takes microseconds to tell one."""
        self.words[:3] = rows.ctypes.data, len(rows), state.ctypes.data
        self.address = self.words.ctypes.data


class Team:
    """Threads that stay inside one compiled loop, without the interpreter lock, and sleep in the system between jobs.

    An interrupt may fall between any two lines of this class: the kernels note how far a job has come, a job that is not over is given up
    before anything else, and what it uses is held until then.
    """

    def __init__(self) -> None:
        found = kernels().addresses(_EXECUTOR)
        self._post, self._rows, self._leave, self._serve = (KERNEL(found[i]) for i in _EXECUTOR)
        memory = words(SYNC_WORDS)
        self._at, self._sync = memory.ctypes.data, memory.data
        self._sync[DONE] = -1
        self._job: tuple[Job, object] | None = None
        self._started = 0
        self._lock = threading.Lock()
        self._dead = False

    def run(self, job: Job, work: int, threads: int, keep: object) -> tuple[float, float]:
        """Walk a tape for ``work`` rows with at most so many threads, this one among them. ``keep``: whatever its addresses name.

        Returns how long it took, without the wait for other jobs, and for how much of that this thread computed, in seconds.
        Signals are looked for at least every quarter of a second; an exception from a handler ends the job between two rows.
        """
        self.check()
        with self._lock:
            self._settle()
            threads = min(threads, 1 + self._recruit(threads - 1))
            job.counters.fill(0)
            job.state[THREADS] = job.words[JOB_THREADS - JOB_TAPE] = threads
            self._job = job, keep
            started, computed = time.perf_counter(), time.thread_time()
            try:
                self._walk(job, work)
            finally:
                self._settle()
            seconds, computed = time.perf_counter() - started, time.thread_time() - computed
            job.pace.took(seconds, work)
            return seconds, computed

    def settle(self) -> None:
        """Give up what an interrupt left of a job. Raises BackendError in a forked child."""
        self.check()
        with self._lock:
            self._settle()

    def _walk(self, job: Job, work: int) -> None:
        row, rows = 0, len(job.rows)
        self._post(self._at, job.address, 0, 0)
        while row < rows:
            end = job.pace.next(row, work)
            self._rows(self._at, row, end, 0)
            row = end

    def check(self) -> None:
        """Raises BackendError in a forked child."""
        if self._dead:
            raise BackendError("this process was forked from one that had loaded a model; load models after the fork")

    def _settle(self) -> None:
        if self._sync[DONE] >= 0:
            self._leave(self._at, 0, 0, 0)
        self._job = None

    def _recruit(self, workers: int) -> int:
        """Start what is missing of so many workers; how many there are. They take their numbers themselves, when they are ready."""
        missing = workers - self._started
        if missing <= 0:
            return self._sync[WORKERS]
        for _ in range(missing):
            with contextlib.suppress(RuntimeError):  # the system gives no more threads: then it is fewer
                arguments = self._at, 0, 0, 0
                threading.Thread(target=self._serve, args=arguments, daemon=True, name="localllm").start()
            self._started += 1
        deadline = time.monotonic() + _ARRIVAL
        while self._sync[WORKERS] < workers and time.monotonic() < deadline:
            time.sleep(0.0002)
        return self._sync[WORKERS]

    def abandon(self) -> None:
        """In a forked child the workers are not there, and who holds the lock is not either: models loaded there get a new team."""
        global _team, _lock
        self._dead = True
        self._lock, _lock = threading.Lock(), threading.Lock()
        if _team is self:
            _team = None


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
    if _team is None:
        with _lock:
            if _team is None:
                _team = Team()
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=_team.abandon)
    return _team
