"""Which guesses a step verifies, and what is learnt from how they turn out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from localllm.generation import sampling
from localllm.generation.speculation.costs import LIMIT
from localllm.generation.speculation.depth import Speed, best, draw, likely, promises
from localllm.generation.speculation.draft import DraftModel
from localllm.generation.speculation.memory import Memory
from localllm.generation.speculation.ngram import Ngram
from localllm.generation.speculation.sources import Guess, learn
from localllm.generation.speculation.venture import Asked


class Chooser:
    """Chooses between guesses of the text and of a draft, either of which may be missing, and none."""

    def __init__(self, memory: Memory, ngram: Ngram | None, draft: DraftModel | None) -> None:
        self._memory, self._ngram, self._draft = memory, ngram, draft
        self._speed = Speed()
        self._free: list[Guess] = []
        self._paid: list[Guess] = []
        self._invested: float | None = None
        self._expected = 1.0
        memory.venture.begin(alone=ngram is None)

    def choose(self, state: sampling.State, room: int) -> list[int]:
        """The guesses to verify after a text with this state, at most ``room``."""
        self._free, self._paid, self._invested = [], [], None
        costs = self._memory.costs
        if costs.level is None:
            return []
        rate, room = self._speed.rate(costs), min(room, costs.reach - 1)
        if self._ngram:
            self._free = likely(self._ngram, state, LIMIT - 1)
        depth, worth = best(_shares(self._free[:room], self._ngram), costs, rate)
        chosen = self._free[:depth]
        shares = _shares(chosen, self._ngram)
        if self._draft and room > 0:
            self._ask(self._draft, state, room, rate, worth)
            depth, paid = best(_shares(self._paid, self._draft), costs, rate)
            if paid > worth:
                chosen, shares = self._paid[:depth], _shares(self._paid[:depth], self._draft)
        self._expected = 1 + sum(accumulate(shares, mul))
        return [guess.token for guess in chosen]

    def saw(self, found: Sequence[int], seconds: float) -> None:
        """The step gave these tokens, guessing and the model's pass took so many seconds."""
        self._speed.saw(len(found), seconds)
        level = self._memory.costs.seconds(1)
        asked = None if self._invested is None else Asked(self._invested, self._expected)
        self._memory.venture.saw(len(found), seconds / level, asked)
        for source, guesses in ((self._ngram, self._free), (self._draft, self._paid)):
            if source:
                learn(source.acceptance, guesses, found)

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens stand behind the text now."""
        for source in (self._ngram, self._draft):
            if source:
                source.extend(tokens)

    def _ask(self, draft: DraftModel, state: sampling.State, room: int, rate: float, worth: float) -> None:
        venture, costs = self._memory.venture, self._memory.costs
        for whole in (True, False):
            lag = draft.lag(whole=whole)
            # What the draft lacks is paid for all the steps that follow, and by this one in part.
            share = lag / venture.run
            if venture.wanted(lag / costs.seconds(1)) and promises(draft, (), costs, rate, room, worth, share):
                draft.hold(whole=whole)
                self._paid = draw(draft, state, costs, rate, room, worth, share)
                self._invested = draft.caught_up / costs.seconds(1) if self._paid else None
                return


def _shares(guesses: Sequence[Guess], source: Ngram | DraftModel | None) -> list[float]:
    return [source.acceptance.share(guess.kind) for guess in guesses] if source else []
