"""DRY, "don't repeat yourself" (pi6am 2024): against tokens that would continue a repetition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localllm.generation.candidates import many
from localllm.generation.checks import LARGEST
from localllm.generation.filters.penalties import latest

if TYPE_CHECKING:
    from localllm.generation.sampling import Breakers, State, Tokens

_LARGEST_LOG = 88.7228391
"""The logarithm of the largest float32."""
_LONGEST_TAIL = 20
"""Ids behind the first one of a sequence breaker, as in llama.cpp."""


@dataclass(frozen=True, slots=True)
class Dry:
    """Subtracts ``multiplier`` x ``base`` ^ (length - ``allowed``) from each token that stood behind an earlier occurrence of the
    line's end, where that occurrence is ``length`` tokens long, at least ``allowed``, within the last ``last_n`` (-1: all).

    No occurrence reaches across a sequence breaker, and a token that holds one is never penalised.
    """

    multiplier: float
    base: float
    allowed: int
    last_n: int
    breakers: Breakers = field(default_factory=dict)

    def __call__(self, given: Tokens, state: State) -> Tokens:
        past = latest(state.recent, self.last_n)
        limit = self._limit(past)
        if len(past) <= self.allowed or limit < self.allowed:
            return given
        found = self._penalties(np.array(past), limit)
        if not found:
            return given
        given = many(given)
        ids = sorted(found)
        places, which = given.among(np.array(ids))
        logits = given.logits.copy()
        logits[places] -= np.array([found[token] for token in ids], np.float32)[which]
        return given.with_logits(logits)

    def _limit(self, past: tuple[int, ...]) -> int:
        """The longest repetition that can count: up to the nearest breaker, and no more than the penalty can grow."""
        most = min(len(past), self.allowed + self._growth(len(past)))
        for n in range(min(len(past), most + _LONGEST_TAIL)):
            tails = self.breakers.get(past[-1 - n], ())
            fitting = [len(tail) for tail in tails if len(tail) <= n and past[len(past) - n :][: len(tail)] == tail]
            if fitting:
                return min(most, n - max(fitting))
        return most

    def _growth(self, most: int) -> int:
        """Tokens beyond the allowed ones after which the penalty grows no more, so that no power overflows float32."""
        return int(_LARGEST_LOG / math.log(self.base)) if self.base > 1.000001 else most

    def _penalties(self, past: NDArray[np.int64], limit: int) -> dict[int, float]:
        lengths = np.zeros(len(past) - 1, np.int64)  # of the common ending of past[: n + 1] and past
        ends = np.arange(len(past) - 1)
        for length in range(1, limit + 1):
            ends = ends[ends >= length - 1]
            ends = ends[past[ends - (length - 1)] == past[-length]]
            if not len(ends):
                break
            lengths[ends] = length
        longest: dict[int, int] = {}
        for n in (lengths >= self.allowed).nonzero()[0]:
            token = int(past[n + 1])
            longest[token] = max(longest.get(token, 0), int(lengths[n]))
        growth = self._growth(limit)
        return {
            token: min(self.multiplier * self.base ** min(length - self.allowed, growth), LARGEST)
            for token, length in longest.items()
            if () not in self.breakers.get(token, ())
        }
