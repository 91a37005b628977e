"""A suffix automaton (Blumer et al. 1985) over tokens: where the end of a text has stood before, at its longest, token by token."""

from __future__ import annotations

from typing import NamedTuple

_WALK = 32
"""Suffixes whose latest place is renewed with each token. A text that repeats itself has very many; older places are right too."""


class Match(NamedTuple):
    """The last ``length`` tokens stood before the end already, and there the next one was at ``next``."""

    length: int
    next: int


class SuffixAutomaton:
    """``tokens``: the text so far. ``append`` takes amortised constant time."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        # State 0 is the empty text. A state stands for the suffixes that end at the same places; ``_length`` is that of the longest.
        self._edges: list[dict[int, int]] = [{}]
        self._link, self._length, self._end = [-1], [0], [0]
        self._last = 0

    def append(self, token: int) -> None:
        """One token more."""
        self._refresh()
        self.tokens.append(token)
        end = len(self.tokens)
        state, new = self._last, self._state({}, 0, end, end)
        while state >= 0 and token not in self._edges[state]:
            self._edges[state][token] = new
            state = self._link[state]
        if state >= 0:
            self._link[new] = self._longest(state, token)
        self._last = new

    def match(self) -> Match | None:
        """The longest end of the text that stands somewhere before, as late as is known; None where not even the last token does."""
        state = self._link[self._last]
        return Match(self._length[state], self._end[state]) if state > 0 else None

    def _longest(self, state: int, token: int) -> int:
        """The state of the longest suffix of ``state`` with the token behind it, split off where it stands for longer ones too."""
        target = self._edges[state][token]
        if self._length[target] == self._length[state] + 1:
            return target
        copy = self._state(dict(self._edges[target]), self._link[target], self._length[state] + 1, self._end[target])
        while state >= 0 and self._edges[state].get(token) == target:
            self._edges[state][token] = copy
            state = self._link[state]
        self._link[target] = copy
        return copy

    def _state(self, edges: dict[int, int], link: int, length: int, end: int) -> int:
        self._edges.append(edges)
        self._link.append(link)
        self._length.append(length)
        self._end.append(end)
        return len(self._link) - 1

    def _refresh(self) -> None:
        """The suffixes of the text end here too. Done when more follows, so that ``match`` finds places before the end."""
        state, end = self._link[self._last], len(self.tokens)
        for _ in range(_WALK):
            if state <= 0:
                return
            self._end[state] = end
            state = self._link[state]
