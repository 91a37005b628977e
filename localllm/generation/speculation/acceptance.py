"""How often guesses are right, as a moving average for each kind of guess."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

_MEMORY = 0.98
"""What an observation is worth after each later one of its kind: the last fifty or so count."""
_NEWS = 0.05
"""The share of an observation in the mean."""
_TRUST = 4.0
"""Observations that the estimate of a kind begins with."""


class Acceptance:
    """Guesses come in kinds, by a measure of confidence: kind k lies between ``borders`` k - 1 and k. ``start``: the shares before anything
    was seen, one more than borders. ``mean``: the share of all kinds together."""

    def __init__(self, borders: Sequence[float], start: Sequence[float], mean: float = 0.7) -> None:
        self._borders = borders
        self._right = [share * _TRUST for share in start]
        self._seen = [_TRUST] * len(start)
        self.mean = mean

    def kind(self, confidence: float) -> int:
        """The kind of a guess."""
        return bisect_right(self._borders, confidence)

    def share(self, kind: int) -> float:
        """How often guesses of a kind are right, if those before them are."""
        return self._right[kind] / self._seen[kind]

    def saw(self, kind: int, right: bool) -> None:
        """A guess turned out right or wrong."""
        self._right[kind] = _MEMORY * self._right[kind] + right
        self._seen[kind] = _MEMORY * self._seen[kind] + 1
        self.mean += _NEWS * (right - self.mean)
