"""The cache of keys and values: pages of TILE tokens, taken as lines grow, shared between forks and copied when written."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.arena import Arena, words
from localllm.backends.cpu.kv_types import KEYS, QUANTISED, SMALLEST, HeadLayout
from localllm.backends.cpu.records import LINE, TILE
from localllm.backends.line import ROLLBACK
from localllm.backends.saved import Reader, Writer
from localllm.errors import UnsupportedError
from localllm.model.program import Attend, Program

_SLAB = 32 << 20


@dataclass(slots=True)
class Kind:
    """Layers whose keys and values are forgotten together: those of one ``window`` (0: never). ``layers``: for each the offset of its
    first head in a page, its key heads, and how each of them lies there."""

    window: int
    layers: dict[int, tuple[int, int, HeadLayout]] = field(default_factory=dict)
    page_bytes: int = 0

    def first(self, n: int) -> int:
        """The first tile that the token behind n others sees."""
        return max(0, n - self.window + 1) // TILE if self.window else 0


def kinds(program: Program, k: str, v: str, floats: Collection[int] = ()) -> list[Kind]:
    """Every kind of layer that a Program has, in order, for types of keys and values; layers of ``floats`` have f16 keys. Raises
    UnsupportedError for heads too narrow."""
    found: dict[int, Kind] = {}
    for op in program.ops:
        if isinstance(op, Attend):
            kind = found.setdefault(op.window, Kind(op.window))
            if k in QUANTISED and op.head_dim < SMALLEST:
                raise UnsupportedError(f"keys of {op.head_dim} values can't be {k}, expected at least {SMALLEST}; take f16")
            layout = HeadLayout("f16" if op.layer in floats else k, v, op.head_dim)
            kind.layers[op.layer] = kind.page_bytes, op.kv_heads, layout
            kind.page_bytes += op.kv_heads * layout.bytes
    return list(found.values())


@dataclass(slots=True)
class Page:
    """Memory for TILE tokens in every layer of a kind, and how many lines hold it."""

    memory: NDArray[np.int64]
    holders: int = 1


class Pool:
    """Pages of one size, cut from huge ones of the system; given back ones are used again. Several threads may take pages at once: a line
    is restored in one while another computes."""

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._free: list[Page] = []
        self._slab, self._left = Arena(0), 0
        # Entered again where the garbage collector closes a line meanwhile. Giving back takes no lock: a forked child may do that too.
        self._lock = threading.RLock()

    def take(self) -> Page:
        """A page that nobody holds. What was written there before may still be: it is never read."""
        with self._lock:
            return self._take()

    def _take(self) -> Page:
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


class Table:
    """The addresses of a line's pages for the kernels, int64 (tiles, kinds)."""

    def __init__(self, width: int) -> None:
        self._width, self._words = width, words(16 * width)
        self.address = self._words.ctypes.data

    def put(self, tile: int, kind: int, address: int) -> None:
        """The address of a page."""
        at = tile * self._width + kind
        if at >= len(self._words):
            table = words(max(2 * len(self._words), 2 * (at + 1)))  # the first tile of a window may be a late one
            table[: len(self._words)] = self._words
            self._words, self.address = table, table.ctypes.data
        self._words[at] = address


class Strand:
    """The pages that a line has of one kind, by tile."""

    def __init__(self, pool: Pool, kind: Kind, table: Table, column: int) -> None:
        self.pool, self.kind = pool, kind
        self._table, self._column = table, column
        self._pages: dict[int, Page] = {}
        self._marks: Sequence[int] = ()
        self._forgotten = 0

    def reserve(self, length: int, n: int) -> None:
        """Make room to write n tokens behind ``length``: new pages, and an own copy of a shared one."""
        first = length // TILE
        shared = self._pages.get(first)
        if shared is not None and shared.holders > 1:
            copy = self.pool.take()
            copy.memory[:] = shared.memory
            self._set(first, copy)
            self.pool.release(shared)
        for tile in range(first, -(-(length + n) // TILE)):
            if tile not in self._pages:
                self._set(tile, self.pool.take())

    def forget(self, length: int) -> None:
        """Give back what no query sees any more, now or behind a return."""
        low = self.kind.first(max(0, length - ROLLBACK))
        if low <= self._forgotten:
            return
        self._forgotten = low
        kept = [range(self.kind.first(max(0, mark - ROLLBACK)), -(-mark // TILE)) for mark in self._marks]
        for tile in [tile for tile in self._pages if tile < low and not any(tile in tiles for tiles in kept)]:
            self._drop(tile)

    def reach(self, n: int) -> int:
        """The greatest length, at most n, whose window is still here."""
        while n:
            lost = next((tile for tile in range(self.kind.first(n), -(-n // TILE)) if tile not in self._pages), None)
            if lost is None:
                break
            n = lost * TILE
        return n

    def cut(self, n: int) -> None:
        """Give back the pages beyond n tokens."""
        self._forgotten = 0
        end = -(-n // TILE)
        for tile in [tile for tile in self._pages if tile >= end]:
            self._drop(tile)

    def keep(self, marks: Sequence[int]) -> None:
        """Keep the windows that end at these lengths."""
        self._marks = marks

    def share(self, other: Strand, length: int) -> None:
        """Become a second holder of another strand's pages of the first tokens."""
        for tile, page in list(other._pages.items()):
            if tile < -(-length // TILE):  # not those that an interrupted call has reserved: both would write them
                page.holders += 1
                self._set(tile, page)
        self._marks = other._marks

    def pieces(self, n: int) -> Sequence[int]:
        """A number, then each page."""
        return [8, *[self.pool.page_bytes] * (-(-n // TILE) - self._start(n))]

    def save(self, out: Writer, n: int) -> None:
        """The first tile, and the pages from there on; of the last one only what the tokens have written."""
        start, end = self._start(n), -(-n // TILE)
        out.word(start)
        for tile in range(start, end):
            memory = self._pages[tile].memory
            out.piece(memory if (tile + 1) * TILE <= n else self._wiped(memory, n % TILE))

    def load(self, source: Reader, n: int) -> None:
        """Pages as they come."""
        start = source.word(self.kind.first(max(0, n - ROLLBACK)), self.kind.first(n))
        for tile in range(start, -(-n // TILE)):
            page = self.pool.take()
            self._set(tile, page)
            source.piece(page.memory)

    def _start(self, n: int) -> int:
        """The first tile that is saved: rows before the end can be returned to as far as their windows are here."""
        start, low = -(-n // TILE), self.kind.first(max(0, n - ROLLBACK))
        while start > low and start - 1 in self._pages:
            start -= 1
        return start

    def _wiped(self, memory: NDArray[np.int64], used: int) -> NDArray[np.int64]:
        """A copy without what other lines have left behind the first tokens."""
        copy = memory.copy()
        for offset, heads, layout in self.kind.layers.values():
            part = copy.view(np.uint8)[offset : offset + heads * layout.bytes].reshape(heads, layout.bytes)
            for start, size, lane in layout.regions():
                region = part[:, start : start + size]
                if lane:
                    keys = region.reshape(heads, TILE // KEYS, -1, KEYS, lane)
                    keys[:, used // KEYS, :, used % KEYS :] = 0
                    keys[:, used // KEYS + 1 :] = 0
                else:
                    region.reshape(heads, TILE, -1)[:, used:] = 0
        return copy

    def _set(self, tile: int, page: Page) -> None:
        # The line has a page when the kernels' table has it, not before: an interrupt may fall between any two lines.
        self._table.put(tile, self._column, page.memory.ctypes.data)
        self._pages[tile] = page

    def memory(self) -> dict[int, int]:
        """Bytes by page."""
        return {id(page): self.pool.page_bytes for page in self._pages.values()}

    def _drop(self, tile: int) -> None:
        self.pool.release(self._pages.pop(tile))
