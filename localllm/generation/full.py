"""What happens when the context is full: which tokens are dropped, so that an answer can go on.

What stays is computed again, since every position changes: the bits are those of the shortened text. Results say what was dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from localllm.errors import ContextFullError

POLICIES = ("error", "stop", "shift", "drop-oldest-turns")
_STEPS = 4
"""Turns are dropped by this part of the context at least, so that a conversation that grows need not be computed anew at every turn."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that was shortened: what is left of it, and what has been dropped of the whole of it."""

    tokens: list[int]
    dropped_tokens: int
    dropped_turns: int = 0


Shorten = Callable[[Sequence[int]], Cut]
"""Given the answer so far, the text to go on from, at least a token shorter than the context.

Raises ContextFullError where nothing more can be dropped."""


def policy(
    name: str,
    keep: int,
    prompt: Any,
    ids: Sequence[int],
    context: int,
    encode: Callable[[Sequence[Mapping[str, Any]]], list[int]],
    leading: Callable[[], Sequence[int]],
) -> Shorten | None:
    """What the options ``on_full`` and ``keep`` mean for a prompt and its ids; None where nothing can be dropped.

    ``encode``: a conversation to ids; ``leading``: gives the ids that every text begins with, which are always kept.
    """
    if name == "shift":
        first = list(leading())
        return Shift(ids, context, keep + len(first) if keep >= 0 and list(ids[: len(first)]) == first else keep)
    if name == "drop-oldest-turns" and prompt and isinstance(prompt[0], Mapping):
        return DropTurns(prompt, encode, context)
    return None


class Shift:
    """Drops the oldest tokens behind the first ``keep`` (-1: the prompt) in blocks of half of the rest, as llama.cpp's context shift."""

    def __init__(self, prompt: Sequence[int], context: int, keep: int) -> None:
        self._prompt, self._context = prompt, context
        self._keep = len(prompt) if keep < 0 else min(keep, len(prompt))

    def __call__(self, answer: Sequence[int]) -> Cut:
        tokens = [*self._prompt, *answer]
        block = (self._context - self._keep) // 2
        if block < 1:
            raise ContextFullError(
                f"{self._keep} tokens are to be kept of a text of {len(tokens)}, which leaves nothing to drop in the context of "
                f"{self._context}; keep less (--keep) or load the model with a larger ctx"
            )
        dropped = max(0, -(-(len(tokens) - self._context + 1) // block)) * block
        return Cut(tokens[: self._keep] + tokens[self._keep + dropped :], dropped)


class DropTurns:
    """Drops the oldest turns of a conversation: a user's message and what follows it up to the next. System messages before them stay."""

    def __init__(
        self, messages: Sequence[Mapping[str, Any]], encode: Callable[[Sequence[Mapping[str, Any]]], list[int]], context: int
    ) -> None:
        begins = [n for n, message in enumerate(messages) if message["role"] == "user"]
        self._system = messages[: begins[0]] if begins else messages
        self._turns = [messages[a:b] for a, b in pairwise([*begins, len(messages)])]
        self._encode, self._context = encode, context
        self._known: dict[int, list[int]] = {}

    def __call__(self, answer: Sequence[int]) -> Cut:
        most = max(0, len(self._turns) - 1)
        over = len(self._without(0)) + len(answer) - self._context + 1
        step = max(1, self._context // _STEPS)
        n = self._least(min(-(-over // step) * step, self._dropped(most)), most)
        if self._dropped(n) < over:
            length, missing = len(self._without(most)) + len(answer), over - self._dropped(most)
            raise ContextFullError(
                f"without the {most} turns before it the last one has {length} tokens: {missing} too many for the context of "
                f"{self._context}; shorten it or load the model with a larger ctx"
            )
        return Cut([*self._without(n), *answer], self._dropped(n), n)

    def _least(self, dropped: int, most: int) -> int:
        """How many turns must go for so many tokens to go."""
        return bisect_left(range(most), dropped, key=self._dropped)

    def _dropped(self, n: int) -> int:
        return len(self._without(0)) - len(self._without(n))

    def _without(self, n: int) -> list[int]:
        if n not in self._known:
            rest = [message for turn in self._turns[n:] for message in turn]
            self._known[n] = self._encode([*self._system, *rest])
        return self._known[n]
