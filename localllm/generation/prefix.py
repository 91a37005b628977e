"""Prefix reuse: a new prompt continues the longest beginning that a line of before has computed already.

Lines come back here when their answers end. They lie in a radix tree over their tokens, share the storage of what they have in common, and
the one that was used longest ago goes when there are too many. The logits that follow are those of a fresh line, bit for bit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from localllm.backends.base import Line
from localllm.generation.budget import Blocks, share_of_free
from localllm.generation.past import Past
from localllm.generation.radix import Radix, Tokens, array
from localllm.generation.saving import SavedLines

_WORTH = 64
"""So many tokens must be left to compute for files to be looked at."""
_TRIES = 4
"""Lines of either kind, longer and shorter ones, that are asked how far back they can go."""


@dataclass(slots=True)
class _Entry:
    """A line that is kept. It is never written, only forked."""

    tokens: Tokens
    line: Line
    blocks: Mapping[int, int]
    used: int


class PrefixCache:
    """The lines of one session that can be continued. ``new_line``: an empty line; ``budget(bytes held)``: bytes that they may take;
    ``saved``: those on disk."""

    def __init__(self, new_line: Callable[[], Line], budget: Callable[[int], int] = share_of_free, saved: SavedLines | None = None) -> None:
        self._new_line, self._budget, self._saved = new_line, budget, saved
        self._tree: Radix[_Entry] = Radix()
        self._blocks = Blocks()
        self._clock = self._dropped = 0
        self._seconds = 0.0  # that a token of a prompt took when it was last measured
        self._open = True
        self._lock = threading.Lock()
        # Lines come back wherever a stream is dropped: in another thread, or by the garbage collector in the middle of a call of ours.
        self._returned: deque[tuple[Tokens, Line, float]] = deque()

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
        return past if self._saved is None else self._longer(past, tokens, self._saved)

    def keep(self, tokens: Sequence[int], line: Line, seconds: float = 0.0) -> None:
        """Take a line back that holds these tokens. It belongs to the cache from now on. ``seconds``: what a token of its prompt took."""
        self._returned.append((array(tokens), line, seconds))
        self._settle()

    def clear(self) -> None:
        """Forget all lines."""
        with self._lock:
            for entry in list(self._tree.below(array(()))):
                self._drop(entry)
        self._settle()

    def close(self) -> None:
        """Save the line that was used last where that pays, and forget all; those that come back from now on are closed at once."""
        self._open = False
        try:
            if self._saved is not None:
                self._save_last(self._saved)
        finally:
            self.clear()

    def _save_last(self, saved: SavedLines) -> None:
        with self._lock:
            latest = max(self._tree.below(array(())), key=lambda entry: entry.used, default=None)
            if latest is not None:
                saved.offer(latest.tokens, latest.line, self._seconds, last=True)
        saved.wait()

    def _longer(self, past: Past, tokens: Tokens, saved: SavedLines) -> Past:
        """What is on disk, where that is enough more than what there is in memory."""
        if len(tokens) - len(past.tokens) < _WORTH:
            return past
        found = saved.find(tokens, len(past.tokens))
        if found is None:
            return past if past.tokens else Past(past.line, (), f"{past.note}, nor on disk")
        past.line.close()
        return found

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

    def _insert(self, tokens: Tokens, line: Line, seconds: float) -> None:
        tokens = tokens[: line.truncate(len(tokens))]
        self._seconds = seconds or self._seconds
        if self._saved is not None and self._open:
            self._saved.offer(tokens, line, self._seconds)
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
