"""Guesses from the text itself: what followed the last time that the text ended like this. Free, so they are always made and judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localllm.generation import sampling
from localllm.generation.speculation.acceptance import Acceptance
from localllm.generation.speculation.automaton import SuffixAutomaton
from localllm.generation.speculation.sources import Guess

_LENGTHS = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)
"""Lengths of a match at which a better kind of guess begins."""
_START = (0.1, 0.25, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95)


class Ngram:
    """Looks the longest end of the text up in what stands before it. ``automaton``: may hold the beginning of the text already."""

    def __init__(self, acceptance: Acceptance, automaton: SuffixAutomaton) -> None:
        self.acceptance, self.automaton = acceptance, automaton
        self.whole = True
        """Whether the automaton can be used: an interrupt may fall between any two lines."""
        self._known = len(automaton.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens stand behind the text now."""
        self.whole = False
        for token in tokens[self._known :]:
            self.automaton.append(token)
        self.whole = True
        self._known = max(0, self._known - len(tokens))

    def guesses(self, state: sampling.State) -> Iterator[Guess]:
        """The tokens behind the match and then, where they reach the end of the text, themselves again."""
        match = self.automaton.match()
        if match is None:
            return
        known = self.automaton.tokens
        period = len(known) - match.next
        n = 0
        while True:
            yield Guess(known[match.next + n % period], self.acceptance.kind(match.length + n))
            n += 1

    def seconds(self, n: int, known: int = 0) -> float:
        """Next to nothing."""
        return 0.0


def acceptance() -> Acceptance:
    """By the length of the match."""
    return Acceptance(_LENGTHS, _START)
