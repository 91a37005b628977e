"""Prefix reuse: a new prompt continues the longest beginning that a line of before has computed already.

Lines come back here when their answers end. They lie in a radix tree over their tokens, share the storage of what they have in common, and
the one that was used longest ago goes when there are too many. The logits that follow are those of a fresh line, bit for bit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from localllm import memory
from localllm.backends.base import Line
from localllm.generation.past import Past
from localllm.generation.radix import Radix, Tokens, array

SHARE = 4
"""Without a budget given, all cached lines together take this part of the memory that would be free without them."""
_UNKNOWN = 1 << 30
"""The budget where nobody knows how much memory is free."""
_TRIES = 4
"""Lines of either kind, longer and shorter ones, that are asked how far back they can go."""


def share_of_free(held: int) -> int:
    """The budget when none is given; ``held``: bytes that cached lines take now."""
    free = memory.free()
    return _UNKNOWN if free is None else (free + held) // SHARE


@dataclass(slots=True)
class _Entry:
    """A line that is kept. It is never written, only forked."""

    tokens: Tokens
    line: Line
    blocks: Mapping[int, int]
    used: int


@dataclass(slots=True)
class _Blocks:
    """Storage that entries hold, each block counted once."""

    total: int = 0
    _holders: dict[int, int] = field(default_factory=dict)

    def add(self, blocks: Mapping[int, int]) -> None:
        for block, size in blocks.items():
            self._holders[block] = holders = self._holders.get(block, 0) + 1
            self.total += size if holders == 1 else 0

    def remove(self, blocks: Mapping[int, int]) -> None:
        for block, size in blocks.items():
            holders = self._holders[block] = self._holders[block] - 1
            if holders == 0:
                del self._holders[block]
                self.total -= size


class PrefixCache:
    """The lines of one session that can be continued. ``new_line``: an empty line; ``budget(bytes held)``: bytes that they may take."""

    def __init__(self, new_line: Callable[[], Line], budget: Callable[[int], int] = share_of_free) -> None:
        self._new_line, self._budget = new_line, budget
        self._tree: Radix[_Entry] = Radix()
        self._blocks = _Blocks()
        self._clock = self._dropped = 0
        self._open = True
        self._lock = threading.Lock()
        # Lines come back wherever a stream is dropped: in another thread, or by the garbage collector in the middle of a call of ours.
        self._returned: deque[tuple[Tokens, Line]] = deque()

    @property
    def bytes(self) -> int:
        """Storage that the cached lines hold."""
        return self._blocks.total

    def take(self, prompt: Sequence[int]) -> Past:
        """A line that begins with as much of the prompt as possible, but for its last token: that one is computed for its logits."""
        tokens = array(prompt)
        with self._lock:
            past = self._continued(tokens)
        self._settle()
        return past

    def keep(self, tokens: Sequence[int], line: Line) -> None:
        """Take a line back that holds these tokens. It belongs to the cache from now on."""
        self._returned.append((array(tokens), line))
        self._settle()

    def clear(self) -> None:
        """Forget all lines."""
        with self._lock:
            for entry in list(self._tree.below(array(()))):
                self._drop(entry)
        self._settle()

    def close(self) -> None:
        """Forget all lines; those that come back from now on are closed at once."""
        self._open = False
        self.clear()

    def _continued(self, tokens: Tokens) -> Past:
        if len(tokens) < 2:
            return Past(self._new_line(), (), "a prompt of one token has no beginning")
        n = min(self._tree.common(tokens), len(tokens) - 1)
        best, line = 0, None
        for entry in self._candidates(tokens[:n]) if n else ():
            fork = entry.line.fork()
            reached = fork.truncate(n)
            if reached > best:
                best, line, fork = reached, fork, line
                self._touch(entry)
            if fork is not None:
                fork.close()
            if best == n:
                break
        if line is None:
            return Past(self._new_line(), (), self._why_none(n))
        return Past(line, tokens[:best].tolist(), "memory")

    def _candidates(self, beginning: Tokens) -> Iterator[_Entry]:
        """Entries that share this beginning, lately used ones first; then those that are a part of it, the longest first."""
        yield from nlargest(_TRIES, self._tree.below(beginning), key=lambda entry: entry.used)
        yield from self._tree.above(beginning)[:_TRIES]

    def _why_none(self, n: int) -> str:
        if n:
            return f"the cached lines that share {n} tokens with it can't go back so far"
        dropped = f" ({self._dropped} were dropped for lack of room)" if self._dropped else ""
        return f"no cached text begins like this one{dropped}" if self._blocks.total else f"nothing is cached yet{dropped}"

    def _settle(self) -> None:
        """Put what has come back into the tree, unless somebody else is at it and will see it."""
        while self._returned and self._lock.acquire(blocking=False):
            try:
                while self._returned:
                    self._insert(*self._returned.popleft())
            finally:
                self._lock.release()

    def _insert(self, tokens: Tokens, line: Line) -> None:
        tokens = tokens[: line.truncate(len(tokens))]
        longer = next((entry for entry in self._tree.below(tokens) if _goes_back(entry.line, len(tokens))), None)
        if longer is not None:
            self._touch(longer)
        if longer is not None or not self._open or not len(tokens):
            line.close()
            return
        entry = _Entry(tokens, line, line.memory(), 0)
        if sum(entry.blocks.values()) > self._budget(self.bytes):
            line.close()
            self._dropped += 1
            return
        for old in [*self._tree.above(tokens)]:
            if _goes_back(line, len(old.tokens)):
                self._drop(old)
        self._blocks.add(entry.blocks)
        self._tree.put(tokens, entry)
        self._touch(entry)
        self._shrink()

    def _shrink(self) -> None:
        limit = self._budget(self.bytes)
        for entry in sorted(self._tree.below(array(())), key=lambda entry: entry.used):
            if self.bytes <= limit:
                return
            self._drop(entry)
            self._dropped += 1

    def _touch(self, entry: _Entry) -> None:
        self._clock += 1
        entry.used = self._clock

    def _drop(self, entry: _Entry) -> None:
        self._tree.pop(entry.tokens)
        self._blocks.remove(entry.blocks)
        entry.line.close()


def _goes_back(line: Line, n: int) -> bool:
    """Whether what is left of a line, cut to n tokens, is n tokens."""
    probe = line.fork()
    reached = probe.truncate(n)
    probe.close()
    return reached == n
