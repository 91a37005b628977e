"""How many threads a kind of job takes at the moment: fewer while another process holds their processors.

Threads meet hundreds of times in a token, and one that has lost its processor keeps all others waiting for milliseconds. They sleep
meanwhile, and the caller sleeps with them or has lost its processor itself: either way it computes for a smaller part of the time that
a job takes, nearly all of it where nothing is wrong. Then a smaller crew is tried and kept while it is faster, and a larger one is tried
again from time to time.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

HELD = 0.75
"""Of a job's time: a caller that computes for less of it has been kept waiting."""
WINDOW, JOBS = 0.1, 2
"""Seconds, and jobs, that are looked at together: some systems count a thread's time in steps of 16 ms."""
RECENT = 5
"""Jobs whose median is the usual time, so that a single long one is not."""
BETTER, MUCH_WORSE = 0.95, 1.3
"""Of the usual time: jobs of a trial have to be shorter than the one; one that is longer than the other ends it."""
TRIAL = 4
"""Jobs of a trial; at most one of them may be no better than usual."""
RETRY, LONGEST_RETRY = 0.5, 4.0
"""Seconds between trials; doubled when one has failed."""


class Crew:
    """``size``: the threads to use for the next job; ``took`` is told how long it took."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = most
        self._most, self._clock = most, clock
        self._settled = most
        self._jobs, self._seconds, self._computed = 0, 0.0, 0.0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._trial: list[float] = []
        self._again, self._wait = clock(), RETRY

    def took(self, seconds: float, computed: float) -> None:
        """The last job, of ``size`` threads, took so long, and its caller computed for so long."""
        if self._most == 1:
            return
        if self.size != self._settled:
            self._try(seconds)
            return
        self._recent.append(seconds)
        self._jobs, self._seconds, self._computed = self._jobs + 1, self._seconds + seconds, self._computed + computed
        if self._jobs >= JOBS and self._seconds >= WINDOW:
            self._choose(self._computed < HELD * self._seconds)

    def _choose(self, held: bool) -> None:
        self._jobs, self._seconds, self._computed = 0, 0.0, 0.0
        if self._clock() < self._again:
            return
        if held and self._settled > 1:
            self.size = self._settled - 1
        elif not held and self._settled < self._most:
            self.size = self._settled + 1

    def _try(self, seconds: float) -> None:
        usual = statistics.median(self._recent)
        self._trial.append(seconds)
        if sum(one >= BETTER * usual for one in self._trial) > 1 or seconds >= MUCH_WORSE * usual:
            self._wait = min(2 * self._wait, LONGEST_RETRY)
            self._end(self._settled)
        elif len(self._trial) == TRIAL:
            self._wait = RETRY
            self._recent = deque(self._trial, RECENT)
            self._end(self.size)

    def _end(self, size: int) -> None:
        self.size = self._settled = size
        self._trial = []
        self._again = self._clock() + self._wait
