"""The likeliest tokens as Python's numbers: for a handful, NumPy's calls cost more than the work, above all with cold caches.

Values are those of float32 arithmetic: one operation on two float32, computed in float64 and then rounded, gives the same bits.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from localllm.backends.base import MOST
from localllm.generation import noise

FEW = MOST
"""Tokens up to which this is faster than arrays, and that a backend hands over instead of all logits."""


class Few(NamedTuple):
    """``logits`` of the tokens ``ids``, likeliest first, the lowest id first on ties. The same methods as Candidates."""

    logits: Sequence[float]
    ids: Sequence[int]

    def first(self, n: int) -> Few:
        """The first n."""
        return Few(self.logits[:n], self.ids[:n]) if n < len(self.ids) else self

    def best(self, n: int) -> Few:
        """The first n are the likeliest."""
        return self.first(n)

    def without(self, ids: Collection[int]) -> Few:
        """Those that are not among ``ids``."""
        if not any(token in ids for token in self.ids):
            return self
        left = [i for i, token in enumerate(self.ids) if token not in ids]
        return Few([self.logits[i] for i in left], [self.ids[i] for i in left])

    def likeliest(self) -> Few:
        """The likeliest alone."""
        return self.first(1)

    def reaching(self, p: float) -> Few:
        """The fewest that have the share ``p`` of all these tokens' probability together."""
        top, exp = self.logits[0], math.exp
        reached = list(accumulate([exp(logit - top) for logit in self.logits]))
        return self.first(bisect_left(reached, p * reached[-1]) + 1)

    def near(self, distance: float) -> Few:
        """Those at most ``distance`` below the likeliest."""
        (distance,) = _rounded((distance,))
        (floor,) = _rounded((self.logits[0] - distance,))
        return self.first(sum([logit >= floor for logit in self.logits]))

    def over(self, t: float) -> Few:
        """Distances to the likeliest divided by ``t``."""
        top = self.logits[0]
        (t,) = _rounded((t,))
        return Few(_rounded([below / t for below in _rounded([logit - top for logit in self.logits])]), self.ids)

    def names(self) -> Sequence[int]:
        """The ids."""
        return self.ids

    def draw(self, place: int) -> int:
        """The token whose logit is largest with the noise of a place added, the lowest id on ties."""
        if len(self.ids) == 1:
            return self.ids[0]
        # Of two pairs the one with the larger first number is the larger, and of equal ones that with the lower id.
        added = noise.of_few(place, self.ids)
        return -max([(logit + one, -token) for logit, one, token in zip(self.logits, added, self.ids, strict=True)])[1]


def _rounded(values: Iterable[float]) -> array[float]:
    """As float32: beyond its range, infinite."""
    return array("f", values)
