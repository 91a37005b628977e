"""Guesses of a smaller model, which chooses with the same sampling states and the same noise as the model that it guesses for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from localllm.backends.base import Likeliest
from localllm.generation import sampling
from localllm.generation.speculation.acceptance import Acceptance
from localllm.generation.speculation.costs import Costs
from localllm.generation.speculation.sources import Guess
from localllm.generation.speculation.vocabularies import Bridge
from localllm.generation.stepper import Stepper

_CHANCES = (0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.998)
"""Probabilities, in the draft's eyes, at which a better kind of guess begins."""
_START = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97)
_LOOKED_AT = 32
"""Of a row's tokens, where not all are wanted: enough to see how sure the draft is."""
_FAR = 80.0
"""A distance of logits whose exponential float32 still holds."""
_WINDOW = 32
"""Tokens of the end of the text that a draft is tried with where the whole would take too long."""
_USUAL = 2
"""Tokens that the line lacks where all guesses were right: the last one, which it was not fed, and the one that the model chose."""


class DraftModel:
    """A line of the draft that follows the text: before it guesses, it is cut to what came true and fed what it lacks.

    ``costs``: of the draft's passes; ``unknown``: what stands for the seconds of one until there was one.
    """

    def __init__(self, line: Stepper, bridge: Bridge, costs: Costs, acceptance: Acceptance, unknown: Callable[[], float]) -> None:
        self.acceptance = acceptance
        self._line, self._bridge, self._costs, self._unknown = line, bridge, costs, unknown
        self._caught_up = 0.0
        self._start = 0
        self._text: list[int] = []
        self._fed: list[int] = []

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens stand behind the text now; the line keeps of its guesses what came true."""
        right, start = min(len(self._text), self._start + len(self._fed)), self._start
        self._text += self._bridge.to_draft(tokens)
        while right < min(start + len(self._fed), len(self._text)) and self._fed[right - start] == self._text[right]:
            right += 1
        self._cut(min(right, len(self._text) - 1))  # the logits after the last token are wanted, so it is fed in any case

    def hold(self, *, whole: bool) -> None:
        """Have the line begin with the text, or where it lacks much near its end: a draft knows less so, but soon shows its worth."""
        start = 0 if whole else self._start if self._behind <= _WINDOW else len(self._text) - _WINDOW
        if start != self._start:
            self._cut(self._start)
            self._start = start

    def guesses(self, state: sampling.State) -> Iterator[Guess]:
        """What the draft would say; ends where its context is full, and at a token that the other model does not have."""
        self._caught_up = 0.0
        state = replace(state, logprobs=None) if state.logprobs is not None else state  # nobody reads what a draft thinks
        pending: Sequence[int] = self._text[self._start + self._line.length :]
        while self._line.room >= len(pending):
            row = self._feed(pending, state.likeliest)
            token, state = sampling.step(state, row)
            yield Guess(token, self.acceptance.kind(_chance(row, token)))
            pending = self._bridge.to_draft((token,))

    def seconds(self, n: int, known: int = 0) -> float:
        """Passes over one token each, but that the first is over what the line usually lacks; ``lag`` is the rest."""
        return (n - 1) * self._pass(1) + self._pass(1 if known else min(_USUAL, self._behind))

    def lag(self, *, whole: bool) -> float:
        """Expected seconds, beyond what is usual between two steps, for what the line lacks of the text, or of its end if that is less."""
        lacking = len(self._text) if whole and self._start else self._behind
        return max(0.0, self._pass(lacking if whole else min(lacking, _WINDOW)) - self._pass(_USUAL))

    @property
    def caught_up(self) -> float:
        """Seconds that such a lag took before the last guesses."""
        return self._caught_up

    @property
    def _behind(self) -> int:
        return max(1, len(self._text) - self._start - self._line.length)

    def _pass(self, tokens: int) -> float:
        return self._costs.seconds(tokens, self._unknown())

    def _cut(self, place: int) -> None:
        if place - self._start < self._line.length:
            self._line.truncate(max(0, place - self._start))
        del self._fed[self._line.length :]

    def _feed(self, tokens: Sequence[int], likeliest: int) -> sampling.Row:
        """The row behind these tokens, in the target's ids."""
        likeliest = max(_LOOKED_AT, likeliest) if likeliest and self._bridge.same else 0
        started = time.perf_counter()
        (row,) = self._line.rows(tokens, likeliest=likeliest)
        spent = time.perf_counter() - started
        self._costs.took(len(tokens), spent)
        self._caught_up += max(0.0, spent - self._pass(_USUAL)) if len(tokens) > _USUAL else 0.0
        self._fed += tokens
        return row if isinstance(row, Likeliest) else self._bridge.to_target(row)


def acceptance() -> Acceptance:
    """By the probability that the draft sees."""
    return Acceptance(_CHANCES, _START)


def _chance(row: sampling.Row, token: int) -> float:
    """The probability of a token, before any filter; among the likeliest where only they are known, which is nearly the same."""
    if not isinstance(row, Likeliest):
        return 1 / float(np.exp(np.minimum(row - row[token], _FAR)).sum())
    of_token = row.logits[row.ids.index(token)]
    return 1 / sum([math.exp(min(logit - of_token, _FAR)) for logit in row.logits])
