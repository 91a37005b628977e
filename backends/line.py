"""What lines of all backends do alike: going back, checkpoints, and saving. What a line holds is in its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from localllm.backends.saved import Form, Reader, Target, Writer
from localllm.errors import BackendError

ROLLBACK = 16
"""Rows that can be returned to behind a batch: each row of one that has at most so many."""
CHECKPOINTS = 8
"""The checkpoints that a line has at most; the oldest go first."""


class Part(Protocol):
    """What a line holds for some of its layers."""

    def reach(self, n: int) -> int:
        """The greatest length, at most n, that it can go back to exactly. 0 always is one; n is not above the present length."""

    def cut(self, n: int) -> None:
        """Forget what is beyond n, which ``reach`` has given."""

    def keep(self, marks: Sequence[int]) -> None:
        """Stay able to return to these lengths: those of before that still count, and perhaps the present one."""

    def memory(self) -> Mapping[int, int]:
        """Bytes that it takes, by block of storage; blocks that are shared have the same key."""

    def pieces(self, n: int) -> Sequence[int]:
        """Bytes of each piece that ``save`` writes for a length of n."""

    def save(self, out: Writer, n: int) -> None:
        """Write the first n tokens' state."""

    def load(self, source: Reader, n: int) -> None:
        """Read it into an empty part."""


class PartedLine:
    """A line of tokens that is made of parts. ``form``: what its file says of its session."""

    def __init__(self, parts: Sequence[Part], form: Callable[[], Form]) -> None:
        self._parts, self._form = parts, form
        self._length = 0
        self._marks: list[int] = []
        self.closed = False

    @property
    def length(self) -> int:
        """Tokens held."""
        return self._length

    def truncate(self, n: int) -> int:
        """Forget what is beyond the first n tokens, or beyond the greatest length below that all parts can go back to; the length
        reached."""
        reached = max(0, min(n, self._length))
        while (lower := min((part.reach(reached) for part in self._parts), default=reached)) < reached:
            reached = lower
        self._length = reached  # before the parts: an interrupt may fall between any two lines, and a line must not claim what it lacks
        self._keep([mark for mark in self._marks if mark <= reached])
        for part in self._parts:
            part.cut(reached)
        return reached

    def checkpoint(self) -> None:
        """Stay able to return to the present length."""
        if self.closed:
            raise BackendError("the line is closed; start a new one")
        self._keep([*(mark for mark in self._marks if mark != self._length), self._length][-CHECKPOINTS:])

    def memory(self) -> dict[int, int]:
        """Bytes by block of storage."""
        return {block: size for part in self._parts for block, size in part.memory().items()}

    def save(self, file: Target) -> None:
        """Write the line to a binary file."""
        if self.closed:
            raise BackendError("the line is closed; there is nothing to save")
        sizes = [size for part in self._parts for size in part.pieces(self._length)]
        out = Writer(file, self._form(), self._length, len(sizes), sum(sizes))
        for part in self._parts:
            part.save(out, self._length)

    def load(self, source: Reader) -> None:
        """Read what ``save`` has written, into a line without tokens. Raises SavedLineError."""
        for part in self._parts:
            part.load(source, source.tokens)
        source.end()
        self._length = source.tokens

    def _keep(self, marks: list[int]) -> None:
        self._marks = marks
        for part in self._parts:
            part.keep(marks)
