"""What a session of the cpu backend is made of: registers, tapes, pages, and the forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import MOST, Chunk, Float, Options, Outputs, Progress, cache_types
from localllm.backends.cpu.buffers import WANTED_ROWS, Buffers, Tables
from localllm.backends.cpu.cache import PagedLine, Storage
from localllm.backends.cpu.crew import Crew
from localllm.backends.cpu.kernel_cache import kernels
from localllm.backends.cpu.layout import FEW
from localllm.backends.cpu.lower import COLUMNS, Lowering, Tape, assemble, column_tile
from localllm.backends.cpu.records import ASKED, ROPES, ROWS, TILE, WANTED
from localllm.backends.cpu.results import Lists, Results
from localllm.backends.cpu.threads import Job, Stopwatch, team
from localllm.backends.cpu.weights import Weights
from localllm.errors import BackendError, UnsupportedError
from localllm.model.program import Attend, Program, Rope
from localllm.model.rope import cos_sin

_MAX_ROPES = 4
_BATCH, _WANTED, _BOTH = range(3)
"""Parts of a Program: on all rows, on wanted rows, and one after the other, which saves a job where both are of one column tile."""


class Engine:
    """Computes. One call at a time: the session sees to that."""

    def __init__(self, program: Program, weights: Weights, options: Options, threads: int, progress: Progress | None) -> None:
        self._program, self._weights, self._options = program, weights, options
        self._ropes = list(dict.fromkeys(op.rope for op in program.ops if isinstance(op, Attend) and op.rope))
        if len(self._ropes) > _MAX_ROPES:
            raise UnsupportedError(f"the model rotates in {len(self._ropes)} ways; the cpu backend holds {_MAX_ROPES}")
        self.storage = Storage(program, weights.vectors, *cache_types(options, "f16"))
        widths = {layer: layout.wide for layer, layout in self.storage.layouts.items()}
        self._buffers = Buffers(program, weights, options.batch, threads, widths)
        self._tables = Tables(program, options.batch, self._buffers.state, widths)
        self._rotated = 0
        self._rope_tables = [np.zeros((0, rope.dim), np.float32) for rope in self._ropes]
        self._logits = self._buffers.rows(program.result, min(WANTED_ROWS, options.batch), program.vocab)
        self._lists = Lists()
        self._team = team()
        self._profile: dict[str, float] | None = None
        self._lines: list[PagedLine] = []
        lowering = Lowering(program, weights, self._buffers, self._ropes, self._lists, self.storage)
        rows = {(part, n): lowering.rows(part, n) for part in (_BATCH, _WANTED) for n in COLUMNS}
        rows |= {(_BOTH, n): [*rows[_BATCH, n], *rows[_WANTED, n]] for n in COLUMNS if n <= FEW}
        addresses = kernels().addresses((row.kernel for tape in rows.values() for row in tape), progress)
        self._tapes = {key: assemble(tape, addresses) for key, tape in rows.items()}
        self._jobs = {key: Job(tape.rows, tape.counters, self._buffers.state, tape.pace) for key, tape in self._tapes.items()}
        self._crews = {key: Crew(threads) for key in rows}
        weights.loading.wait(progress)

    def check(self) -> None:
        """Raises BackendError in a forked child."""
        self._team.check()

    def settle(self) -> None:
        """End what an interrupt has left of a call: it works on the tables that the next one fills."""
        self._team.settle()

    def forward(self, batch: Sequence[Chunk], profile: dict[str, float] | None) -> Outputs:
        """Append every chunk to its line and compute what is wanted; seconds by kernels are added up in ``profile``."""
        self._profile = profile
        lines = self._lines = self._check(batch)
        results = Results(batch, self._program.vocab)
        self._buffers.state[ASKED] = results.asked
        self._compute(self._fill(batch, lines), _wanted(batch), results)
        for chunk, line in zip(batch, lines, strict=True):
            line.advance(len(chunk.tokens))
        return results.outputs

    def _check(self, batch: Sequence[Chunk]) -> list[PagedLine]:
        total = sum(len(chunk.tokens) for chunk in batch)
        if total > self._options.batch:
            raise BackendError(f"a batch of {total} rows; this session takes at most {self._options.batch}")
        lines = []
        for chunk in batch:
            line = chunk.line
            if not isinstance(line, PagedLine) or line.closed or line.storage is not self.storage or line in lines:
                raise BackendError("a chunk's line is closed, of another session, or twice in the batch")
            lines.append(line)
            bad = [token for token in chunk.tokens if not 0 <= token < self._program.vocab]
            if bad:
                raise BackendError(f"token {bad[0]} is not in the vocabulary of {self._program.vocab}")
            if [row for row in chunk.want.rows if not 0 <= row < len(chunk.tokens)]:
                raise BackendError(f"wanted rows {list(chunk.want.rows)} of a chunk of {len(chunk.tokens)} tokens")
            if not 0 <= chunk.want.likeliest <= MOST:
                raise BackendError(f"{chunk.want.likeliest} of the likeliest tokens are wanted; expected 0 to {MOST}")
        return lines

    def _fill(self, batch: Sequence[Chunk], lines: Sequence[PagedLine]) -> int:
        """The tables of this call; how many rows there are."""
        at, longest = 0, 0
        runs: list[tuple[int, int, int, int]] = []
        for chunk, line in zip(batch, lines, strict=True):
            n, length = len(chunk.tokens), line.length
            line.reserve(n)
            self._tables.put(at, chunk.tokens, length, line.address)
            runs.append((at, n, length, line.address))
            at, longest = at + n, max(longest, length + n)
        if at > FEW:
            self._tables.put_tiles(runs)
        else:
            self._tables.grow_partials(-(-longest // TILE))
        if longest > self._rotated:
            self._grow_ropes(longest)
        self._buffers.set_count(ROWS, at)
        return at

    def _grow_ropes(self, positions: int) -> None:
        """A row of cosines and sines depends on its position alone, so tables grow without changing."""
        self._rotated = 0  # until all is in place: an interrupt may fall between any two lines
        for i, rope in enumerate(self._ropes):
            have = len(self._rope_tables[i])
            if positions > have:
                more = max(positions, 2 * have, 256) - have
                self._rope_tables[i] = np.concatenate([self._rope_tables[i], cos_sin(rope, self._factors(rope), have, more)])
            self._buffers.state[ROPES + i] = self._rope_tables[i].ctypes.data
        self._rotated = min((len(table) for table in self._rope_tables), default=positions)

    def _factors(self, rope: Rope) -> NDArray[np.float32] | None:
        return None if rope.factors is None else self._weights.vectors[rope.factors][: rope.dim // 2]

    def _compute(self, rows: int, wanted: Sequence[int], results: Results) -> None:
        step = len(self._logits)
        if 0 < len(wanted) <= step and rows <= FEW and column_tile(rows) == column_tile(len(wanted)):
            results.put(0, self._some(wanted, _BOTH, rows), self._lists)
            return
        if rows:
            self._run(_BATCH, rows)
        for first in range(0, len(wanted), step):
            some = wanted[first : first + step]
            results.put(first, self._some(some, _WANTED, len(some)), self._lists)

    def _some(self, wanted: Sequence[int], part: int, rows: int) -> Float:
        """Logits of a few rows, where they are computed."""
        self._tables.put_wanted(wanted)
        self._buffers.set_count(WANTED, len(wanted))
        self._run(part, rows)
        return self._logits[: len(wanted)]

    def _run(self, part: int, rows: int) -> None:
        key = part, column_tile(rows)
        crew = self._crews[key]
        job = self._jobs[key] if self._profile is None else self._timed(self._tapes[key], self._profile)
        seconds, computed = self._team.run(job, rows, crew.size, (self, self._lines))
        if rows <= FEW:  # longer jobs differ in length, and their rows are long enough for threads to take turns
            crew.took(seconds, computed)

    def _timed(self, tape: Tape, profile: dict[str, float]) -> Job:
        return Job(tape.rows, tape.counters, self._buffers.state, Stopwatch(tape.pace, tape.kinds, profile))


def _wanted(batch: Sequence[Chunk]) -> list[int]:
    """Wanted rows, counted from the start of the batch."""
    out, at = [], 0
    for chunk in batch:
        out += [at + row for row in chunk.want.rows]
        at += len(chunk.tokens)
    return out
