"""How many guesses are worth their time.

What a pass is worth is the tokens that it is expected to give, less those that the same time gives elsewhere: time is worth the speed of
the last steps, and at least that of plain decoding. Always taking the pass that is worth most makes the long-run speed the largest
(Dinkelbach 1967), which the largest speed of each single pass does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from localllm.generation import sampling
from localllm.generation.speculation.costs import Costs
from localllm.generation.speculation.sources import Guess, Source

_MEMORY = 0.95
"""What a step is worth in the running speed after each later one."""
_LEAST = 0.03
"""A chance below which no pass gets longer for a guess."""
_AHEAD = 8
"""Guesses that are thought ahead when another one is to be paid for."""


class Speed:
    """Tokens a second over the last steps."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def saw(self, tokens: int, seconds: float) -> None:
        """A step gave so many tokens in so many seconds."""
        self._tokens = _MEMORY * self._tokens + tokens
        self._seconds = _MEMORY * self._seconds + seconds

    def rate(self, costs: Costs) -> float:
        """What a second is worth, in tokens."""
        plain = 1 / costs.seconds(1)
        return max(plain, self._tokens / self._seconds) if self._seconds > 0 else plain


def likely(source: Source, state: sampling.State, most: int) -> list[Guess]:
    """Guesses of a source that takes no time, as long as there is some chance that all are right."""
    guesses: list[Guess] = []
    chance = 1.0
    for guess in islice(source.guesses(state), most):
        guesses.append(guess)
        chance *= source.acceptance.share(guess.kind)
        if chance < _LEAST:
            break
    return guesses


def best(shares: Sequence[float], costs: Costs, rate: float) -> tuple[int, float]:
    """How many of these guesses to verify, the n-th of which is right with share n if those before are, and what that is worth."""
    depth, most = 0, 1 - rate * costs.seconds(1)
    expected = chance = 1.0
    for n, share in enumerate(shares, 1):
        chance *= share
        expected += chance
        worth = expected - rate * costs.seconds(1 + n)
        if worth > most:
            depth, most = n, worth
    return depth, most


def draw(source: Source, state: sampling.State, costs: Costs, rate: float, room: int, least: float, lag: float) -> list[Guess]:
    """Guesses of a source that takes time, as many as are expected to be worth it. ``least``: what there is without it; ``lag``: seconds
    that the first guess takes besides."""
    guesses: list[Guess] = []
    shares: list[float] = []
    ask = source.guesses(state)
    while len(guesses) < room and promises(source, shares, costs, rate, room, least, lag):
        guess = next(ask, None)
        if guess is None:
            break
        guesses.append(guess)
        shares.append(source.acceptance.share(guess.kind))
        least, lag = best(shares, costs, rate)[1], 0.0
    return guesses


def promises(source: Source, shares: Sequence[float], costs: Costs, rate: float, room: int, least: float, lag: float) -> bool:
    """Whether more guesses, right as often as they are on average, are expected to be worth more than ``least``."""
    chance = expected = 1.0
    for share in shares:
        chance *= share
        expected += chance
    known = len(shares)
    for n in range(1, min(_AHEAD, room - known) + 1):
        chance *= source.acceptance.mean
        expected += chance
        if expected - rate * (costs.seconds(1 + known + n) + source.seconds(n, known) + lag) > least:
            return True
    return False
