"""Filters that look at the shape of a distribution: locally typical tokens, standard deviations, and excluding top choices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localllm.generation import noise
from localllm.generation.candidates import Double, Float, many

if TYPE_CHECKING:
    from localllm.generation.sampling import State, Tokens

_HEADS = (256, 4096)


@dataclass(frozen=True, slots=True)
class Typical:
    """Keeps the tokens whose surprise is nearest to the expected one, as many as exceed ``p`` together (Meister et al. 2022), and at
    least ``keep``."""

    p: float
    keep: int = 0

    def __call__(self, given: Tokens, state: State) -> Tokens:
        given = many(given)
        chances, surprises = given.chances()
        possible = chances > 0
        entropy = float((chances[possible] * surprises[possible]).sum())
        return given.take(np.sort(self._nearest(chances, np.abs(surprises - entropy))), ranked=given.ranked)

    def _nearest(self, chances: Double, distances: Double) -> NDArray[np.int64]:
        """The places of those to keep, the nearest first. A head is tried before all are sorted, which takes longer than all else."""
        for size in (*(head for head in _HEADS if self.keep <= head < len(distances)), len(distances)):
            border = np.partition(distances, size - 1)[size - 1]
            near: NDArray[np.int64] = (distances <= border).nonzero()[0]
            near = near[distances[near].argsort(kind="stable")]
            count = int(chances[near].cumsum().searchsorted(self.p, side="right")) + 1
            if count <= len(near):
                break
        return near[: max(count, self.keep)]


@dataclass(frozen=True, slots=True)
class TopNSigma:
    """Keeps the tokens whose logits are within ``n`` standard deviations of the largest (Tang et al. 2024).

    llama.cpp leaves the others in with no probability; here they are gone, which only a dynamic temperature right behind can tell.
    """

    n: float

    def __call__(self, given: Tokens, state: State) -> Tokens:
        given = many(given)
        logits, top = given.logits, float(given.top())
        possible = logits if logits.min() > -np.inf else logits[logits > -np.inf]
        floor = top - self.n * _deviation(possible)
        return given.take((logits >= floor).nonzero()[0], ranked=given.ranked)


def _deviation(logits: Float) -> float:
    """The standard deviation; squares are float32, which takes a tenth of the time, and their sum is not."""
    mean = float(logits.sum(dtype=np.float64)) / len(logits)
    near = np.float32(mean)
    below = logits - near
    below *= below
    return math.sqrt(max(0.0, float(below.sum(dtype=np.float64)) / len(logits) - (mean - float(near)) ** 2))


@dataclass(frozen=True, slots=True)
class XTC:
    """With this ``probability`` takes out all tokens of at least the probability ``threshold`` but the least likely of them (p-e-w 2024),
    unless fewer than ``keep`` would be left. The coin is the noise's, so a step that is repeated falls the same way."""

    probability: float
    threshold: float
    keep: int = 0

    def __call__(self, given: Tokens, state: State) -> Tokens:
        if noise.coin(noise.key(state.seed, state.completion, state.count)) > self.probability:
            return given
        given = many(given)
        chances, surprises = given.chances()
        above = (chances >= self.threshold).nonzero()[0]
        if len(above) < 2 or len(chances) - (len(above) - 1) < self.keep:
            return given
        # Of equal ones the last stays, as if all were ranked.
        last = above[len(above) - 1 - int(surprises[above][::-1].argmax())]
        left = np.ones(len(chances), np.bool_)
        left[above] = False
        left[last] = True
        return given.take(left.nonzero()[0], ranked=given.ranked)


@dataclass(frozen=True, slots=True)
class DynamicTemperature:
    """Divides the logits by a temperature between ``low`` and ``high``: the entropy's share of the largest possible, to the power of
    ``exponent``, is how far it goes up (kalomaze 2023)."""

    low: float
    high: float
    exponent: float
    coldest: float

    def __call__(self, given: Tokens, state: State) -> Tokens:
        chances, surprises = many(given).chances()
        if len(chances) == 1:
            return given
        possible = chances > 0
        entropy = max(0.0, float((chances[possible] * surprises[possible]).sum()))
        share = min(1.0, entropy / math.log(len(chances)))
        return given.over(max(self.low + (self.high - self.low) * share**self.exponent, self.coldest))
