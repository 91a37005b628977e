"""What a source of guesses is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from localllm.generation import sampling
from localllm.generation.speculation.acceptance import Acceptance


class Guess(NamedTuple):
    """A token that may come next, after the guesses before it. ``kind``: what sort of guess it is, for ``Acceptance``."""

    token: int
    kind: int


class Source(Protocol):
    """Guesses how a text goes on. ``acceptance``: how often its guesses were right."""

    @property
    def acceptance(self) -> Acceptance: ...

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens stand behind the text now."""

    def guesses(self, state: sampling.State) -> Iterator[Guess]:
        """What may follow the text, one token after another, as long as somebody asks. ``state``: that of the text."""

    def seconds(self, n: int, known: int = 0) -> float:
        """Expected seconds of the next n guesses behind ``known`` ones that were made already."""


def learn(acceptance: Acceptance, guessed: Sequence[Guess], found: Sequence[int]) -> None:
    """See which guesses were right, up to the first wrong one, now that the tokens are known."""
    for guess, token in zip(guessed, found, strict=False):
        acceptance.saw(guess.kind, guess.token == token)
        if guess.token != token:
            return
