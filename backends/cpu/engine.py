"""What a session of the cpu backend is made of: registers, tapes, pages, and the forward pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import Chunk, Float, Options, Outputs, Progress
from localllm.backends.cpu.buffers import WANTED_ROWS, Buffers, Tables, query_tiles
from localllm.backends.cpu.crew import Crew
from localllm.backends.cpu.kernel_cache import kernels
from localllm.backends.cpu.layout import FEW
from localllm.backends.cpu.lower import COLUMNS, Lowering, assemble, column_tile
from localllm.backends.cpu.pages import PagedLine, Pool, layer_offsets
from localllm.backends.cpu.records import (
    KEY_TILES,
    NQ,
    PAGES,
    PARTIALS,
    POSITIONS,
    QUERY_TILES,
    ROPES,
    ROWS,
    TILE,
    TOKENS,
    WANT,
    WANTED,
)
from localllm.backends.cpu.threads import Job, Stopwatch, team
from localllm.backends.cpu.weights import Weights
from localllm.errors import BackendError, UnsupportedError
from localllm.model.program import Attend, Program, Rope
from localllm.model.rope import cos_sin

_MAX_ROPES = 4


class Engine:
    """Computes. One call at a time: the session sees to that."""

    def __init__(self, program: Program, weights: Weights, options: Options, threads: int, progress: Progress | None) -> None:
        self._program, self._weights, self._options = program, weights, options
        self._ropes = list(dict.fromkeys(op.rope for op in program.ops if isinstance(op, Attend) and op.rope))
        if len(self._ropes) > _MAX_ROPES:
            raise UnsupportedError(f"the model rotates in {len(self._ropes)} ways; the cpu backend holds {_MAX_ROPES}")
        self._buffers = Buffers(program, weights, options.batch, threads)
        self._tables = Tables(program, options.batch)
        self._rope_tables = [np.zeros((0, rope.dim), np.float32) for rope in self._ropes]
        self._team = team()
        self.pool = Pool(layer_offsets(program)[1])
        self._profile: dict[str, float] | None = None
        self._lines: list[PagedLine] = []
        lowering = Lowering(program, weights, self._buffers, self._ropes)
        rows = {(part, n): lowering.rows(part, n) for part in (0, 1) for n in COLUMNS}
        addresses = kernels().addresses((row.kernel for tape in rows.values() for row in tape), progress)
        self._tapes = {key: assemble(tape, addresses) for key, tape in rows.items()}
        self._crews = {key: Crew(threads) for key in rows}
        weights.loading.wait(progress)

    def settle(self) -> None:
        """End what an interrupt has left of a call: it works on the tables that the next one fills."""
        self._team.settle()

    def forward(self, batch: Sequence[Chunk], profile: dict[str, float] | None) -> Outputs:
        """Append every chunk to its line and compute what is wanted; seconds by kernels are added up in ``profile``."""
        self._profile = profile
        lines = self._lines = self._check(batch)
        for chunk, line in zip(batch, lines, strict=True):
            line.reserve(len(chunk.tokens))
        total = self._fill(batch, lines)
        if total:
            self._run(0, total)
        wanted = self._wanted(batch)
        logits = self._results(wanted)
        for chunk, line in zip(batch, lines, strict=True):
            line.advance(len(chunk.tokens))
        ends = np.cumsum([0, *(len(chunk.want.rows) for chunk in batch)])
        return Outputs([logits[first:last] for first, last in pairwise(ends)])

    def _check(self, batch: Sequence[Chunk]) -> list[PagedLine]:
        total = sum(len(chunk.tokens) for chunk in batch)
        if total > self._options.batch:
            raise BackendError(f"a batch of {total} rows; this session takes at most {self._options.batch}")
        lines = []
        for chunk in batch:
            line = chunk.line
            if not isinstance(line, PagedLine) or line.closed or line.pool is not self.pool or line in lines:
                raise BackendError("a chunk's line is closed, of another session, or twice in the batch")
            lines.append(line)
            bad = next((t for t in chunk.tokens if not 0 <= t < self._program.vocab), None)
            if bad is not None:
                raise BackendError(f"token {bad} is not in the vocabulary of {self._program.vocab}")
            if any(not 0 <= row < len(chunk.tokens) for row in chunk.want.rows):
                raise BackendError(f"wanted rows {list(chunk.want.rows)} of a chunk of {len(chunk.tokens)} tokens")
        return lines

    def _fill(self, batch: Sequence[Chunk], lines: Sequence[PagedLine]) -> int:
        """The tables of this call; how many rows there are."""
        t, at = self._tables, 0
        tiles: list[tuple[int, int, int, int]] = []
        for chunk, line in zip(batch, lines, strict=True):
            n = len(chunk.tokens)
            t.tokens[at : at + n] = chunk.tokens
            t.positions[at : at + n] = np.arange(line.length, line.length + n)
            t.pages[at : at + n] = line.table.ctypes.data
            tiles += query_tiles(at, n, line.length, line.table.ctypes.data)
            at += n
        t.query_tiles[: len(tiles)] = np.array(tiles, np.int64).reshape(-1, 4)
        longest = max((line.length + len(chunk.tokens) for chunk, line in zip(batch, lines, strict=True)), default=0)
        self._grow_ropes(longest)
        if at <= FEW:
            t.grow_partials(-(-longest // TILE))
        self._point(at, len(tiles))
        return at

    def _point(self, rows: int, tiles: int) -> None:
        t, state = self._tables, self._buffers.state
        self._buffers.set_count(ROWS, rows)
        state[NQ], state[KEY_TILES] = tiles, t.key_tiles
        for word, table in (
            (TOKENS, t.tokens),
            (POSITIONS, t.positions),
            (PAGES, t.pages),
            (QUERY_TILES, t.query_tiles),
            (PARTIALS, t.partials),
        ):
            state[word] = table.ctypes.data
        for i, rope in enumerate(self._rope_tables):
            state[ROPES + i] = rope.ctypes.data

    def _grow_ropes(self, positions: int) -> None:
        """A row of cosines and sines depends on its position alone, so tables grow without changing."""
        for i, rope in enumerate(self._ropes):
            have = len(self._rope_tables[i])
            if positions > have:
                more = max(positions, 2 * have, 256) - have
                self._rope_tables[i] = np.concatenate([self._rope_tables[i], cos_sin(rope, self._factors(rope), have, more)])

    def _factors(self, rope: Rope) -> NDArray[np.float32] | None:
        return None if rope.factors is None else self._weights.vectors[rope.factors][: rope.dim // 2]

    def _wanted(self, batch: Sequence[Chunk]) -> list[int]:
        out, at = [], 0
        for chunk in batch:
            out += [at + row for row in chunk.want.rows]
            at += len(chunk.tokens)
        return out

    def _results(self, wanted: Sequence[int]) -> Float:
        """Logits of rows of the batch."""
        logits = np.empty((len(wanted), self._program.vocab), np.float32)
        step = min(WANTED_ROWS, self._options.batch)
        for first in range(0, len(wanted), step):
            some = wanted[first : first + step]
            self._tables.want[: len(some)] = some
            self._buffers.set_count(WANTED, len(some))
            self._buffers.state[WANT] = self._tables.want.ctypes.data
            self._run(1, len(some))
            logits[first : first + len(some)] = self._buffers.rows(self._program.result, len(some), self._program.vocab)
        return logits

    def _run(self, part: int, rows: int) -> None:
        key = part, column_tile(rows)
        tape, crew = self._tapes[key], self._crews[key]
        pace = tape.pace if self._profile is None else Stopwatch(tape.pace, tape.kinds, self._profile)
        started, computed = time.perf_counter(), time.thread_time()
        self._team.run(Job(tape.rows, tape.counters, self._buffers.state, pace, rows, (self, tape, self._lines)), crew.size)
        if rows <= FEW:  # longer jobs differ in length, and their rows are long enough for threads to take turns
            crew.took(time.perf_counter() - started, time.thread_time() - computed)
