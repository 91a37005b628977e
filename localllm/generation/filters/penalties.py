"""Penalties for tokens of the recent past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localllm.generation.candidates import many

if TYPE_CHECKING:
    from localllm.generation.sampling import State, Tokens


@dataclass(frozen=True, slots=True)
class Penalties:
    """Against the last ``last_n`` tokens (-1: all): ``repeat`` divides logits above 0 and multiplies others (Keskar et al. 2019),
    ``presence`` and ``frequency`` subtract, once and per occurrence."""

    repeat: float
    presence: float
    frequency: float
    last_n: int = -1

    def __call__(self, given: Tokens, state: State) -> Tokens:
        past = latest(state.recent, self.last_n)
        if not past:
            return given
        ids, counts = np.unique(np.array(past), return_counts=True)
        given = many(given)
        places, which = given.among(ids)
        logits = given.logits.copy()
        hit = logits[places]
        hit = np.where(hit > 0, hit / np.float32(self.repeat), hit * np.float32(self.repeat))
        logits[places] = hit - (self.frequency * counts[which] + self.presence).astype(np.float32)
        return given.with_logits(logits)


def latest(tokens: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The last n tokens, all of them where n is negative."""
    return tokens if n < 0 or n >= len(tokens) else tokens[len(tokens) - n :]
