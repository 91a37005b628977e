"""A session of the cpu backend: one forward pass at a time, over lines that share the registers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from localllm.backends.base import Chunk, Options, Outputs, Progress
from localllm.backends.cpu.cache import PagedLine
from localllm.backends.cpu.engine import Engine
from localllm.backends.cpu.threads import default_threads
from localllm.backends.cpu.weights import Weights
from localllm.backends.saved import Source
from localllm.errors import BackendError
from localllm.model.program import Program


class CpuSession:
    """May be used from several threads, which wait for each other; not from a signal handler, which would wait for itself."""

    def __init__(self, program: Program, weights: Weights, options: Options, progress: Progress | None = None) -> None:
        self.threads = options.threads or default_threads()
        """How many threads compute, at most."""
        self._engine: Engine | None = Engine(program, weights, options, self.threads, progress)
        self._lock = threading.Lock()
        self._profile: dict[str, float] | None = None

    @contextmanager
    def profile(self) -> Iterator[dict[str, float]]:
        """Seconds by kernels, those together that no barrier separates."""
        self._profile = seconds = dict[str, float]()
        try:
            yield seconds
        finally:
            self._profile = None

    def new_line(self) -> PagedLine:
        """An empty line."""
        return PagedLine(self._open().storage)

    @property
    def fingerprint(self) -> str:
        """Digest of the Program, the kernels and the types of the cache."""
        return self._open().storage.form.digest

    def restore(self, file: Source) -> PagedLine:
        """The line that ``Line.save`` has written. Raises SavedLineError."""
        self._open().check()
        with self._lock:
            engine = self._open()
            engine.settle()  # what an interrupt has left of a call may still write to pages that were given back since
            return engine.storage.restore(file)

    def forward(self, batch: Sequence[Chunk]) -> Outputs:
        """Append every chunk to its line and compute what is wanted.

        Raises BackendError for what no batch can be, before anything is computed.
        """
        self._open().check()  # before the lock: in a forked child nobody will ever open it, and this says so
        with self._lock:
            engine = self._open()
            engine.settle()
            return engine.forward(batch, self._profile)

    def close(self) -> None:
        """Give weights, registers and tapes back, once a call that is under way is over; the pages go with their lines."""
        try:
            self._open().check()
        except BackendError:  # closed already, or in a forked child: there no call is under way, and nobody will ever open the lock
            self._engine = None
            return
        with self._lock:
            self._engine = None

    def _open(self) -> Engine:
        if self._engine is None:
            raise BackendError("the session is closed; load the model again")
        return self._engine
