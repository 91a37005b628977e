"""Lines of the cpu backend: their pages of every kind, and the storage that these come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from localllm import __version__
from localllm.backends.cpu.kernel_cache import kernels
from localllm.backends.cpu.outliers import float_keys
from localllm.backends.cpu.pages import Pool, Strand, Table, kinds
from localllm.backends.cpu.records import TILE
from localllm.backends.line import PartedLine
from localllm.backends.saved import Form, Reader, Source
from localllm.errors import BackendError
from localllm.model.program import Program


class Storage:
    """Where a session's lines have their pages from."""

    def __init__(self, program: Program, vectors: Mapping[str, NDArray[np.float32]], kv_type_k: str, kv_type_v: str) -> None:
        self._program, self._types = program, (kv_type_k, kv_type_v)
        self.kinds = kinds(program, kv_type_k, kv_type_v, float_keys(program, kv_type_k, vectors.__getitem__))
        self.layouts = {layer: layout for kind in self.kinds for layer, (_, _, layout) in kind.layers.items()}
        """How each layer's heads lie in a page."""
        self.pools = [Pool(kind.page_bytes) for kind in self.kinds]

    @cached_property
    def form(self) -> Form:
        """What a saved line must agree with."""
        code = repr(("cpu", __version__, kernels().folder.name, self._program, self.kinds)).encode()
        return Form(TILE, *self._types, hashlib.blake2b(code, digest_size=32).digest())

    def restore(self, file: Source) -> PagedLine:
        """The line of a file. Raises SavedLineError."""
        line = PagedLine(self)
        try:
            line.load(Reader(file, self.form))
        except BaseException:
            line.close()
            raise
        return line


class PagedLine(PartedLine):
    """A line of tokens: its pages, and a table of their addresses for the kernels."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._table = Table(len(storage.kinds))
        pools = zip(storage.pools, storage.kinds, strict=True)
        self._strands = [Strand(pool, kind, self._table, column) for column, (pool, kind) in enumerate(pools)]
        super().__init__(self._strands, lambda: storage.form)
        self._room = 0
        """Up to this length pages are there that nobody else holds."""

    @property
    def address(self) -> int:
        """Of the table."""
        return self._table.address

    def reserve(self, n: int) -> None:
        """Make room to write n tokens behind the present ones: new pages, and own copies of shared ones."""
        end = self._length + n
        if end > self._room:
            for strand in self._strands:
                strand.reserve(self._length, n)
            self._room = -(-end // TILE) * TILE

    def advance(self, n: int) -> None:
        """The n tokens behind the end are written."""
        self._length += n
        for strand in self._strands:
            if strand.kind.window:
                strand.forget(self._length)

    def truncate(self, n: int) -> int:
        """As all lines do."""
        self._room = 0
        return super().truncate(n)

    def fork(self) -> PagedLine:
        """A second line with the same past."""
        if self.closed:
            raise BackendError("a line that is closed can't be forked")
        self._room = 0
        line = PagedLine(self.storage)
        for mine, theirs in zip(self._strands, line._strands, strict=True):
            theirs.share(mine, self._length)
        line._marks = list(self._marks)
        line._length = self._length
        return line

    def close(self) -> None:
        """Give the pages back."""
        self._marks = []
        self.truncate(0)
        self.closed = True
