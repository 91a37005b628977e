"""Whether a source that costs time is worth asking at all, by what the steps with it have earned."""

from __future__ import annotations

from typing import NamedTuple

_MEMORY = 31 / 32
"""What a step is worth in the running gain after each later one."""
_HOPE = 0.1
"""The gain of a step that is expected at the beginning, in tokens of plain decoding."""
_STAKE, _PROOF = 2.5, 6
"""Tokens that may be invested before so many steps have shown what the source is worth."""
_CAP = 0.5
"""The largest gain that is believed in: good texts end."""
_TRY = 0.05
"""The same after a pause: a step or two must show that it has changed."""
_DOUBT = 0.15
"""A real loss of a step that speaks against an expected gain."""
_SHORT, _LONG = 32, 1024
"""Tokens of the first pause, and of the longest: each that was in vain doubles the next."""
_OUTLOOK = 64
"""Tokens that are expected to follow at least; where the text is longer already, as many again."""
_RUN, _RUN_ALONE = 24.0, 64.0
"""Steps in a row that are expected at the beginning, with and without another source beside it."""
_LOSS, _GRACE, _TRIAL = 0.01, 1.5, 2.5
"""What all steps together may have lost: this part of the text, and so many tokens, the first when another try begins, the second,
investments aside, when one goes on."""


class Asked(NamedTuple):
    """``investment``: what the source was given this once, in plain tokens; ``expected``: tokens that its guesses let expect."""

    investment: float
    expected: float


class Venture:
    """Counts in tokens of plain decoding. ``ahead``: what the steps of a text have gained so far.

    ``gain``: of a step with the source, by how often such guesses are right, which tells much after a few steps; ``real``: by what came.
    """

    def __init__(self) -> None:
        self.gain = self.real = _HOPE
        self.ahead = self._invested = 0.0
        self._made = self._pause = 0
        self._next_pause = _SHORT
        self._trying = False
        self._run, self._steps, self._asked = 0.0, 0, 0

    @property
    def run(self) -> float:
        """Steps in a row that the source is expected to be asked in."""
        return max(self._run, float(self._steps))

    def begin(self, *, alone: bool) -> None:
        """Another text. ``alone``: there is no other source."""
        self.ahead, self._invested, self._made, self._steps = 0.0, 0.0, 0, 0
        self._run = self._run or (_RUN_ALONE if alone else _RUN)

    def wanted(self, investment: float) -> bool:
        """Whether to ask the source. ``investment``: what it costs this time beyond what it usually does."""
        if self._pause or (self._trying and self.ahead < -_GRACE - _LOSS * self._made):
            return False
        return investment <= (_STAKE if self._asked < _PROOF else self.gain * max(_OUTLOOK, self._made))

    def saw(self, tokens: int, seconds: float, asked: Asked | None = None) -> None:
        """A step gave so many tokens in the time of so many plain ones. ``asked``: what the source said, if it was asked."""
        self._made += tokens
        self.ahead += tokens - seconds
        if asked is None:
            self._rest(tokens)
        else:
            self._steps += 1
            self._asked += 1
            self._invested += asked.investment
            spent = seconds - asked.investment * (1 - 1 / self.run)
            self.gain = min(_CAP, _mixed(self.gain, asked.expected - spent))
            self.real = min(_CAP, _mixed(self.real, tokens - spent))
            self._judge()

    def _rest(self, tokens: int) -> None:
        if self._steps:
            self._run, self._steps = 0.75 * self._run + 0.25 * self._steps, 0
        if 0 < self._pause <= tokens:
            self.gain, self.real, self._trying, self._asked = _TRY, _TRY, True, 0
        self._pause = max(0, self._pause - tokens)

    def _judge(self) -> None:
        if self.gain <= 0 or self.real < -_DOUBT or (self.gain < _HOPE and self.ahead + self._invested < -_TRIAL - _LOSS * self._made):
            self._pause, self._next_pause = self._next_pause, min(_LONG, 2 * self._next_pause)
        elif self.gain > 2 * _TRY:
            self._trying, self._next_pause = False, _SHORT


def _mixed(before: float, now: float) -> float:
    return _MEMORY * before + (1 - _MEMORY) * now
