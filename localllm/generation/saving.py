"""Long lines are kept on disk, so that a later process need not compute them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from io import FileIO
from typing import BinaryIO

from localllm.backends.base import Line
from localllm.errors import SavedLineError
from localllm.generation.background import Background
from localllm.generation.past import Past
from localllm.generation.radix import Tokens, common
from localllm.store.kv import LineFolder, SavedLine

PAYS = 1.0
"""A line is written where computing what is not on disk yet would take so many seconds."""
GROWTH = 4
"""... and where that is this part of the line, so that a text that grows is not written again and again."""
_READ = 400e6
"""Bytes a second that a slow disk reads. A file is read where that takes half the time of computing, or less."""
_TRIES = 2


class SavedLines:
    """The saved lines of one session. ``folder``: makes their folder when it is needed; ``restore``: reads a line."""

    def __init__(self, folder: Callable[[], LineFolder], restore: Callable[[FileIO], Line]) -> None:
        self._make, self._restore = folder, restore
        self._writer: Background[None] | None = None
        self._stopped = False

    @cached_property
    def _folder(self) -> LineFolder:
        return self._make()

    def find(self, tokens: Tokens, more_than: int) -> Past | None:
        """A line that begins with more than so many of the tokens, but not with the last one, where reading pays."""
        found = [(min(common(saved.tokens, tokens), len(tokens) - 1), saved) for saved in self._folder.lines()]
        found = [(n, saved) for n, saved in found if 0 < 2 * saved.size / _READ <= (n - more_than) * saved.seconds]
        for n, saved in sorted(found, key=lambda each: (-each[0], each[1].size))[:_TRIES]:
            line = self._read(saved)
            if line is None:
                continue
            reached = line.truncate(n)
            if reached > more_than:
                return Past(line, tokens[:reached].tolist(), "disk")
            line.close()
        return None

    def offer(self, tokens: Tokens, line: Line, seconds: float, *, last: bool = False) -> None:
        """Write a line in the background, where that pays; ``seconds``: what each of its tokens would take to compute again.
        ``last``: nothing will come behind it."""
        if len(tokens) * seconds < PAYS:
            return
        fork, before = line.fork(), self._writer

        def write() -> None:
            try:
                if before is not None:
                    before.wait()
                self._write(tokens, fork, seconds, last)
            except OSError:  # a full disk, or a folder that can't be written: it costs time, not function
                pass
            finally:
                fork.close()

        try:
            self._writer = Background(write)
        except RuntimeError:  # no threads begin any more where the interpreter is ending
            fork.close()

    def wait(self) -> None:
        """Until everything is written. An interrupt stops the writing, and leaves no half file."""
        if self._writer is None:
            return
        try:
            self._writer.wait()
        except KeyboardInterrupt:
            self._stopped = True
            self._writer.wait()
            raise

    def _read(self, saved: SavedLine) -> Line | None:
        try:
            with self._folder.open(saved) as file:
                line = self._restore(file)
        except SavedLineError:
            self._folder.remove(saved)
            return None
        except OSError:  # removed meanwhile, for one
            return None
        if line.length == len(saved.tokens):
            return line
        line.close()
        self._folder.remove(saved)
        return None

    def _write(self, tokens: Tokens, line: Line, seconds: float, last: bool) -> None:
        there = self._folder.lines()
        new = len(tokens) - max((common(saved.tokens, tokens) for saved in there), default=0)
        if new * seconds < PAYS or not (last or new * GROWTH >= len(tokens)):
            return
        if not self._folder.write(tokens, seconds, sum(line.memory().values()), lambda file: line.save(_Stoppable(file, self))):
            return
        for saved in there:
            if len(saved.tokens) < len(tokens) and common(saved.tokens, tokens) == len(saved.tokens):
                self._folder.remove(saved)

    @property
    def stopped(self) -> bool:
        """Whether writing was given up."""
        return self._stopped


class _Stoppable:
    """A file that refuses to go on when its writer is stopped."""

    def __init__(self, file: BinaryIO, saved: SavedLines) -> None:
        self._file, self._saved = file, saved

    def write(self, data: memoryview, /) -> int:
        if self._saved.stopped:
            raise InterruptedError("writing was stopped")
        return self._file.write(data)
