"""The cache of keys and values: pages of TILE tokens, taken as lines grow, shared between forks and copied when written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.arena import Arena, words
from localllm.backends.cpu.arguments import head_bytes
from localllm.backends.cpu.records import LINE, TILE
from localllm.model.program import Attend, Program


def layer_offsets(program: Program) -> tuple[dict[int, int], int]:
    """Where each layer's heads begin in a page, and how long a page is."""
    offsets, at = {}, 0
    for op in program.ops:
        if isinstance(op, Attend):
            offsets[op.layer] = at
            at += op.kv_heads * head_bytes(op.head_dim)
    return offsets, max(at, 64)


@dataclass(slots=True)
class Page:
    """Memory for TILE tokens in every layer, and how many lines hold it."""

    memory: NDArray[np.int64]
    holders: int = 1


_SLAB = 32 << 20


class Pool:
    """Pages of one size, cut from huge ones of the system; given back ones are used again."""

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._free: list[Page] = []
        self._slab, self._left = Arena(0), 0

    def take(self) -> Page:
        """A page that nobody holds. What was written there before may still be: it is finite, and never read."""
        if self._free:
            page = self._free.pop()
            page.holders = 1
            return page
        if self._left == 0:
            count = max(1, _SLAB // self.page_bytes)
            self._slab = Arena(count * self.page_bytes)
            self._left = count
        self._left -= 1  # before the memory is taken: an interrupt between the two costs a page, the other way round it would give too many
        return Page(self._slab.take(self.page_bytes, LINE).view(np.int64))

    def release(self, page: Page) -> None:
        """One holder less."""
        page.holders -= 1
        if page.holders == 0:
            self._free.append(page)


class PagedLine:
    """A line of tokens: its pages, and a table of their addresses for the kernels."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._pages: list[Page] = []
        self.table = words(16)
        self.address = self.table.ctypes.data
        """Of the table."""
        self._length = 0
        self.closed = False

    @property
    def length(self) -> int:
        """Tokens held."""
        return self._length

    def reserve(self, n: int) -> None:
        """Make room to write n tokens behind the present ones: new pages, and own copies of shared ones."""
        first = self._length // TILE
        if first < len(self._pages) and self._pages[first].holders > 1:
            copy, shared = self.pool.take(), self._pages[first]
            copy.memory[:] = shared.memory
            self._set(first, copy)
            self.pool.release(shared)
        while len(self._pages) * TILE < self._length + n:
            self._set(len(self._pages), self.pool.take())

    def _set(self, index: int, page: Page) -> None:
        # The line has a page when the kernels' table has it, not before: an interrupt may fall between any two lines.
        if index == len(self.table):
            table = words(2 * len(self.table))
            table[: len(self.table)] = self.table
            self.table, self.address = table, table.ctypes.data
        self.table[index] = page.memory.ctypes.data
        self._pages[index : index + 1] = [page]

    def advance(self, n: int) -> None:
        """The n tokens behind the end are written."""
        self._length += n

    def truncate(self, n: int) -> int:
        """Forget what is beyond the first n tokens; the length reached."""
        self._length = max(0, min(n, self._length))
        while len(self._pages) > -(-self._length // TILE):
            self.pool.release(self._pages.pop())
        return self._length

    def fork(self) -> PagedLine:
        """A second line with the same past."""
        line = PagedLine(self.pool)
        for page in self._pages[: -(-self._length // TILE)]:  # not those that an interrupted call has reserved: both would write them
            page.holders += 1
            line._set(len(line._pages), page)
        line._length = self._length
        return line

    def memory(self) -> dict[int, int]:
        """Bytes by page."""
        return {id(page): self.pool.page_bytes for page in self._pages}

    def close(self) -> None:
        """Give the pages back."""
        self.truncate(0)
        self.closed = True
