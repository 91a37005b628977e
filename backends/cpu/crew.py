"""How many threads a kind of job takes at the moment: fewer while another process holds their processors.

Threads meet hundreds of times in a token, and one that has lost its processor keeps all others waiting for milliseconds. So the time of
each job is compared with the best that the same job took: when it stays behind, a smaller crew is tried and kept while it is faster, and
a larger one is tried again from time to time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLOW = 1.4
"""Over the best time: a job that took longer went wrong."""
PATIENCE = 4
"""Slow jobs in excess of good ones before a smaller crew is tried, and jobs that a trial lasts."""
FORGET = 1.002
"""The best time rises by this with each job, since jobs get longer as a context grows."""
RETRY, LONGEST_RETRY = 0.5, 4.0
"""Seconds before a larger crew is tried again; doubled when it was not faster."""


class Crew:
    """``size``: the threads to use for the next job; ``took`` is told how long it took."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = most
        self._most, self._clock = most, clock
        self._settled = most
        self._best: dict[int, float] = {}
        self._slow = 0
        self._trial: list[float] = []
        self._usual = 0.0
        self._again, self._wait = clock(), RETRY

    def took(self, seconds: float) -> None:
        """The last job, of ``size`` threads, took so long."""
        if self._most == 1:
            return
        if self.size != self._settled:
            self._try(seconds)
            return
        best = self._best[self.size] = min(seconds, FORGET * self._best.get(self.size, seconds))
        self._usual += 0.3 * (seconds - self._usual) if self._usual else seconds
        self._slow = max(0, self._slow + (1 if seconds > SLOW * best else -1))
        if self._settled > 1 and self._slow >= PATIENCE and self._clock() >= self._again:
            self.size = self._settled - 1
        elif self._settled < self._most and self._clock() >= self._again:
            self.size = self._settled + 1

    def _try(self, seconds: float) -> None:
        self._trial.append(seconds)
        if len(self._trial) < PATIENCE:
            return
        typical = sorted(self._trial)[PATIENCE // 2]
        if typical < 0.95 * self._usual:
            self._settled, self._usual, self._wait = self.size, typical, RETRY
        else:
            self._wait = min(2 * self._wait, LONGEST_RETRY)
        self._again = self._clock() + self._wait
        self.size, self._trial, self._slow = self._settled, [], 0
