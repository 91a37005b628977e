"""Lines and the interpreter that runs a Program over a batch of chunks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np

from localllm import __version__
from localllm.backends.base import MOST, Chunk, Float, Options, Outputs, cache_types, likeliest
from localllm.backends.line import PartedLine
from localllm.backends.reference import ops
from localllm.backends.reference.weights import Weights
from localllm.backends.saved import Form, Reader, Source
from localllm.errors import BackendError
from localllm.model.program import Program


class ReferenceLine(PartedLine):
    """One line: what each layer remembers, such as the rotated keys and the values of all positions."""

    def __init__(self, session: ReferenceSession, held: Mapping[int, ops.Held]) -> None:
        super().__init__(list(held.values()), lambda: session.form)
        self.session, self.held = session, held

    def fork(self) -> ReferenceLine:
        """A copy."""
        self.session.check(self)
        line = ReferenceLine(self.session, {layer: held.copy(self._length) for layer, held in self.held.items()})
        line._length, line._marks = self._length, list(self._marks)
        return line

    def close(self) -> None:
        """Give the storage back; the line can't be used any more."""
        self.closed, self.held, self._parts, self._length = True, {}, [], 0

    def grow(self, n: int) -> None:
        """Count ``n`` more rows as held: they are in the cache."""
        self._length += n


class ReferenceSession:
    """Runs each operation for the whole batch before the next one."""

    def __init__(self, program: Program, weights: Weights, options: Options) -> None:
        self._program = program
        self._weights: Weights | None = weights
        self._options, self._types = options, cache_types(options, "f32")
        self._profile: dict[str, float] | None = None

    @property
    def threads(self) -> int:
        """NumPy decides; we use one."""
        return 1

    @contextmanager
    def profile(self) -> Iterator[dict[str, float]]:
        """Seconds by kind of operation."""
        self._profile = seconds = dict[str, float]()
        try:
            yield seconds
        finally:
            self._profile = None

    def new_line(self) -> ReferenceLine:
        """An empty line."""
        return ReferenceLine(self, {op.layer: held for op in self._program.ops if (held := ops.remember(op, self._types))})  # type: ignore[union-attr]

    @cached_property
    def form(self) -> Form:
        """What a saved line must agree with."""
        code = repr(("reference", __version__, np.__version__, self._program)).encode()
        return Form(1, *self._types, hashlib.blake2b(code, digest_size=32).digest())

    @property
    def fingerprint(self) -> str:
        """Digest of the Program and of what computes it."""
        return self.form.digest

    def restore(self, file: Source) -> ReferenceLine:
        """The line that ``Line.save`` has written. Raises SavedLineError."""
        line = self.new_line()
        line.load(Reader(file, self.form))
        return line

    def forward(self, batch: Sequence[Chunk]) -> Outputs:
        """Append every chunk to its line, in order, and give the logits of the wanted rows.

        Raises BackendError for what no batch can be, before anything is computed. A line may occur twice: its second chunk comes after.
        """
        program, weights = self._program, self._weights
        if weights is None:
            raise BackendError("the session is closed; compile the program again")
        rows = self._rows(batch)
        state = ops.State(weights, rows, {})
        for op in program.ops:
            started = time.perf_counter()
            ops.run(op, state)
            if self._profile is not None:
                kind = type(op).__name__
                self._profile[kind] = self._profile.get(kind, 0.0) + time.perf_counter() - started
        for row in rows:
            row.line.grow(len(row.tokens))
        return _outputs(state.registers[program.result], batch)

    def close(self) -> None:
        """Let the weights go."""
        self._weights = None

    def check(self, line: object) -> ReferenceLine:
        """The line, if it is an open one of this session; else BackendError."""
        if not isinstance(line, ReferenceLine) or line.session is not self or line.closed:
            raise BackendError(
                f"a line that is {'closed' if isinstance(line, ReferenceLine) and line.closed else 'of another session'} can't be used"
            )
        return line

    def _rows(self, batch: Sequence[Chunk]) -> list[ops.Rows]:
        rows: list[ops.Rows] = []
        ends: dict[int, int] = {}
        for chunk in batch:
            line = self.check(chunk.line)
            first = ends.get(id(line), line.length)
            ends[id(line)] = first + len(chunk.tokens)
            rows.append(ops.Rows(line, first, self._tokens(chunk.tokens), _wanted(chunk)))
        total = sum(len(row.tokens) for row in rows)
        if total > self._options.batch:
            raise BackendError(f"a batch of {total} rows, expected at most Options.batch = {self._options.batch}")
        return rows

    def _tokens(self, tokens: Sequence[int]) -> list[int]:
        for token in tokens:
            if not 0 <= token < self._program.vocab:
                raise BackendError(f"token id {token} is not in the vocabulary, expected 0 to {self._program.vocab - 1}")
        return [int(token) for token in tokens]


def _wanted(chunk: Chunk) -> list[int]:
    for row in chunk.want.rows:
        if not 0 <= row < len(chunk.tokens):
            raise BackendError(f"row {row} is wanted of a chunk of {len(chunk.tokens)} tokens")
    if not 0 <= chunk.want.likeliest <= MOST:
        raise BackendError(f"{chunk.want.likeliest} of the likeliest tokens are wanted, expected 0 to {MOST}")
    return list(chunk.want.rows)


def _outputs(logits: Float, batch: Sequence[Chunk]) -> Outputs:
    outputs, at = Outputs(), 0
    for chunk in batch:
        k, rows = chunk.want.likeliest, logits[at : at + len(chunk.want.rows)]
        outputs.likeliest.append([likeliest(row, k) for row in rows] if k else [])
        outputs.logits.append(np.array(rows[:0] if k else rows))
        at += len(rows)
    return outputs
