"""The tokens that a sampler still considers, and how the likeliest are found without sorting a vocabulary.

Between two tokens all caches are full of weights, and a call that is new to them takes microseconds however little it does: so methods
and ufuncs stand here where NumPy's functions would call them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localllm.generation import noise
from localllm.generation.few import FEW, Few

Float = NDArray[np.float32]
Double = NDArray[np.float64]
_ROWS = 64
_HEADS = (256, 4096)
_TINY = 1e-6
"""A temperature that may make logits overflow; to have NumPy ignore that takes longer than the division."""


class Candidates(NamedTuple):
    """``logits`` (n,) of the tokens ``ids`` (n,), or of the whole vocabulary in order where ``ids`` is None.

    ``ranked``: likeliest first, the lowest id first on ties. ``place``: where the likeliest stands, if that is known. Filters leave the
    arrays of others as they are.
    """

    logits: Float
    ids: NDArray[np.int64] | None = None
    ranked: bool = False
    place: int | None = None

    def take(self, index: NDArray[np.int64], *, ranked: bool = False) -> Candidates:
        """Those at ``index``, in its order."""
        return Candidates(self.logits.take(index), index if self.ids is None else self.ids.take(index), ranked)

    def first(self, n: int) -> Candidates:
        """The first n."""
        return Candidates(self.logits[:n], np.arange(n) if self.ids is None else self.ids[:n], self.ranked)

    def best(self, n: int) -> Candidates | Few:
        """The n likeliest, ranked."""
        if self.ranked:
            return self.first(n)
        ranked = self._ranked(n)
        return Few(ranked.logits.tolist(), ranked.names().tolist()) if n <= FEW else ranked

    def likeliest(self) -> Few:
        """The likeliest alone, the lowest id on ties."""
        place = int(self.logits.argmax()) if self.place is None else self.place
        return Few([float(self.logits[place])], [place if self.ids is None else int(self.ids[place])])

    def reaching(self, p: float) -> Candidates | Few:
        """The fewest that have the share ``p`` of all these tokens' probability together, ranked."""
        top = self.top()
        if self.ranked:
            reached = np.add.accumulate(_weights(self.logits, top))
            return self.first(_count(reached, p * reached[-1]))
        if len(self.logits) <= FEW:
            return self.best(FEW).reaching(p)
        goal = p * _weights(self.logits, top).sum()
        for size in (*_HEADS, len(self.logits)):
            head = self._ranked(size)
            reached = np.add.accumulate(_weights(head.logits, top))
            if reached[-1] >= goal or len(head.logits) == len(self.logits):
                break
        return head.first(_count(reached, goal))

    def _ranked(self, n: int) -> Candidates:
        near = self if n >= len(self.logits) else self.take((self.logits >= _floor(self.logits, n)).nonzero()[0])
        # Ids rise here: a filter either ranks or keeps the order, so a stable sort leaves the lowest id first.
        return near.take((-near.logits).argsort(kind="stable")[:n], ranked=True)

    def near(self, distance: float) -> Candidates:
        """Those at most ``distance`` below the likeliest."""
        near = self.logits >= self.top() - np.float32(distance)
        return self.first(int(np.count_nonzero(near))) if self.ranked else self.take(near.nonzero()[0])

    def over(self, t: float) -> Candidates:
        """Distances to the likeliest divided by ``t``."""
        # From the largest down, so that a temperature near 0 overflows to -inf and never to inf.
        below = self.logits - self.top()
        if t > _TINY:
            return self._replace(logits=below / np.float32(t))
        with np.errstate(over="ignore"):
            return self._replace(logits=below / np.float32(t))

    def draw(self, place: int) -> int:
        """The token whose logit is largest with the noise of a place added, the lowest id on ties."""
        ids = self.names()
        if len(ids) == 1:
            return int(ids[0])
        # A shift of all log-probabilities alike changes no order, so they are not normalised.
        noisy = self.logits + noise.gumbel(place, ids)
        return int(np.minimum.reduce(ids[noisy == np.maximum.reduce(noisy)]))

    def top(self) -> np.float32:
        """The largest logit."""
        place = 0 if self.ranked else self.place
        largest: np.float32 = np.maximum.reduce(self.logits) if place is None else self.logits[place]
        return largest

    def names(self) -> NDArray[np.int64]:
        """The ids, also where they are all."""
        return np.arange(len(self.logits)) if self.ids is None else self.ids

    def chances(self) -> tuple[Double, Double]:
        """The probability of each of these tokens among them, and its surprise, the negative logarithm of that."""
        below = self.logits.astype(np.float64) - float(self.top())
        weights = np.exp(below)
        total = weights.sum()
        return weights / total, math.log(total) - below

    def among(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where these ids, which rise, are among the tokens, and which of ``ids`` stands at each of the places."""
        if self.ids is None:
            return ids, np.arange(len(ids))
        which = ids.searchsorted(self.ids).clip(max=len(ids) - 1)
        places = (ids[which] == self.ids).nonzero()[0]
        return places, which[places]

    def with_logits(self, logits: Float) -> Candidates:
        """The same tokens with other logits."""
        if not self.ranked:
            return Candidates(logits, self.ids)
        order = self.names().argsort()  # ids rise where nothing is ranked
        return Candidates(logits.take(order), self.names().take(order))


def many(given: Candidates | Few) -> Candidates:
    """Tokens as arrays, for filters that need more than Python's numbers do well."""
    if isinstance(given, Candidates):
        return given
    return Candidates(np.array(given.logits, np.float32), np.array(given.ids), ranked=True)


def _weights(logits: Float, top: np.float32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] = np.exp(logits.astype(np.float64) - float(top))
    return weights


def _count(reached: np.ndarray[tuple[int], np.dtype[np.float64]], goal: float) -> int:
    return min(int(reached.searchsorted(goal)) + 1, len(reached))


def _floor(logits: Float, n: int) -> np.float32:
    """A value that at least n logits reach, and few more. The n-th largest maximum of strided groups is one, found in one
    vectorised pass; a partition of the whole vocabulary costs ten times as much."""
    columns = len(logits) // _ROWS
    if columns < 4 * n:
        found = logits.copy()
    else:
        found = np.maximum.reduce(logits[: _ROWS * columns].reshape(_ROWS, columns))
    place = len(found) - n
    found.partition(place)
    floor: np.float32 = found[place]
    return floor
