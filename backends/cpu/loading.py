"""Reading and packing weights: threads that take pieces of the file until none is left, while the caller does other work."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import Progress, Readable
from localllm.backends.cpu.arena import Arena, words
from localllm.backends.cpu.arguments_load import LOAD, PIECE
from localllm.backends.cpu.kernel_cache import KernelId, kernels
from localllm.backends.cpu.layout import padded
from localllm.backends.cpu.threads import KERNEL
from localllm.errors import BackendError

_KERNEL: KernelId = ("load", "load")
_READ = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 5)
_FILE, _DONE = PIECE.names.index("file"), PIECE.names.index("done")
_READ_WORD, _LOADED = LOAD.names.index("read"), LOAD.names.index("loaded")
_GLANCE = 0.05
"""Seconds between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file, and what packs them: address and arguments (REPACK, but for ``src``) of a kernel."""

    file: Readable
    offset: int
    bytes: int
    pack: int
    arguments: Mapping[str, int]


class Loading:
    """Pieces on their way into memory. ``keep``: the memory that they go to."""

    def __init__(self, pieces: Sequence[Piece], threads: int, keep: object) -> None:
        self._total, self._keep, self._threads = sum(piece.bytes for piece in pieces), keep, list[threading.Thread]()
        self._error: BaseException | None = None
        self._files = list(dict.fromkeys(piece.file for piece in pieces))
        self._number = [self._files.index(piece.file) for piece in pieces]
        self._table = _table(pieces)
        size = padded(max((piece.bytes for piece in pieces), default=0), 4096)
        self._arena: Any = Arena(threads * size)
        self._counter, self._words = words(8), words(len(LOAD.names))
        self._words[:] = LOAD.fill(
            read=0, pieces=self._table.ctypes.data, count=len(pieces), loaded=0,
            buffers=self._arena.take(threads * size).ctypes.data, buffer_bytes=size,
        )  # fmt: skip
        self._load: Any = KERNEL(kernels().addresses([_KERNEL])[_KERNEL])
        self._callback: Any = _READ(self._read)
        self._slow = not hasattr(os, "pread")
        self._start(threads)

    def wait(self, progress: Progress | None = None) -> None:
        """Until all is there; progress("load", bytes, total) is told of it. Raises what reading raises."""
        try:
            self._join(progress)
            if not (self._slow or self._table[:, _DONE].all()):
                self._slow = True  # once more, in words that a person understands
                self._start(len(self._threads))
                self._join(progress)
        finally:
            self.stop()
        if not self._table[:, _DONE].all():
            raise self._error or BackendError("loading was stopped before its end; load the model again")

    def stop(self) -> None:
        """Take no more pieces, wait for those that are under way, and let the file and all memory go."""
        self._counter[0] = len(self._table)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._threads, self._files = [], []
        self._keep = self._arena = self._load = self._callback = None  # the callback refers to this object: a circle

    def _start(self, threads: int) -> None:
        self._words[_READ_WORD] = _address(self._callback if self._slow else ctypes.CDLL(None).pread)
        self._table[:, _FILE] = self._number if self._slow else [self._files[i].fileno() for i in self._number]
        self._counter[0] = 0
        arguments = self._words.ctypes.data, 0, self._counter.ctypes.data
        self._threads = []
        for i in range(threads):
            self._threads.append(threading.Thread(target=self._run, args=(*arguments, i), name="localllm-load"))
            try:
                self._threads[-1].start()
            except RuntimeError as error:  # the system gives no more threads: then it is fewer
                self._threads.pop()
                if not self._threads:
                    raise BackendError(f"no thread can be started to load the model: {error}") from None
                break

    def _run(self, *arguments: int) -> None:
        self._load(*arguments)  # a method, so that the thread holds all that the kernel uses

    def _join(self, progress: Progress | None) -> None:
        for thread in self._threads:
            running = True
            while running:
                thread.join(_GLANCE)
                running = thread.is_alive()
                if progress is not None:
                    progress("load", int(self._words[_LOADED]), self._total)

    def _read(self, file: int, to: int, count: int, offset: int) -> int:
        try:
            self._files[file].read_into(offset, memoryview((ctypes.c_uint8 * count).from_address(to)).cast("B"))
        except BaseException as error:
            self._error = error
            return -1
        return count


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _table(pieces: Sequence[Piece]) -> NDArray[np.int64]:
    table = words(len(pieces) * len(PIECE.names)).reshape(len(pieces), len(PIECE.names))
    for row, piece in zip(table, pieces, strict=True):
        row[:] = PIECE.fill(file=0, offset=piece.offset, bytes=piece.bytes, pack=piece.pack, done=0, src=0, **piece.arguments)
    return table
