"""Mirostat (Basu et al. 2021): as many tokens as keep the surprise of those drawn near a target.

The bound that it learns, ``mu``, is in the state: a step that is taken back takes back what was learnt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localllm.generation.candidates import Double, many

if TYPE_CHECKING:
    from localllm.generation.sampling import State, Tokens

_SEEN = 100
"""Tokens from which version 1 estimates how steeply probabilities fall."""
_FLAT = 1e-9


@dataclass(frozen=True, slots=True)
class Mirostat:
    """Version 2, and what both have: the target ``tau`` in bits and the rate ``eta`` at which ``mu`` follows. The last of its chain."""

    tau: float
    eta: float

    def __call__(self, given: Tokens, state: State) -> Tokens:
        """Keeps the tokens whose surprise is at most mu, or else the likeliest."""
        assert state.mu is not None
        given = many(given)
        _, surprises = given.chances()
        least = float(surprises.min())
        bound = state.mu * math.log(2)
        return given.near(bound - least) if least <= bound else given.likeliest()

    def learnt(self, mu: float, left: Tokens, token: int) -> float:
        """The bound after this token was drawn from those that were left."""
        left = many(left)
        _, surprises = left.chances()
        seen = float(surprises[left.names() == token][0]) / math.log(2)
        return mu - self.eta * (seen - self.tau)


@dataclass(frozen=True, slots=True)
class Mirostat1(Mirostat):
    """Version 1, which takes probabilities to fall as Zipf's law has it: the k likeliest, k from the exponent that fits best."""

    def __call__(self, given: Tokens, state: State) -> Tokens:
        assert state.mu is not None
        given = many(given)
        head = np.array(given.best(_SEEN).logits, np.float64)
        return given.best(count(head[head > -np.inf], state.mu, len(given.logits)))


def count(head: Double, mu: float, vocabulary: int) -> int:
    """How many of the likeliest give a surprise of ``mu`` bits; ``head`` (n,): the largest logits, falling."""
    if len(head) < 2:
        return 1
    ranks = np.log(np.arange(2, len(head) + 1) / np.arange(1, len(head)))
    exponent = max(float((ranks * -np.diff(head)).sum() / (ranks * ranks).sum()), _FLAT)
    excess = exponent - 1
    # excess / (1 - vocabulary ** -excess), which tends to 1 / log(vocabulary) where the exponent is 1.
    size = math.log(vocabulary)
    share = 1 / size if abs(excess * size) < _FLAT else excess / -math.expm1(-excess * size)
    power = (math.log(share) + mu * math.log(2)) / exponent
    return vocabulary if power >= size else max(1, int(math.exp(power)))
