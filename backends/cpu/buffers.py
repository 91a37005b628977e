"""Where the registers of a Program lie, and the tables that the kernels read of each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.arena import Arena, words
from localllm.backends.cpu.arguments import few_scratch, many_scratch, partial_bytes, rope_scratch, route_scratch
from localllm.backends.cpu.layout import FEW, GROUP, LAYOUTS, MANY, SPAN, activation_bytes, padded
from localllm.backends.cpu.records import (
    KEY_TILES,
    NQ,
    PAGES,
    PARTIALS,
    POSITIONS,
    QUERIES,
    QUERY_TILES,
    SCRATCH,
    SCRATCH_BYTES,
    STATE_WORDS,
    TOKENS,
    WANT,
)
from localllm.backends.cpu.weights import Matrix, Weights
from localllm.model.program import Attend, Last, Linear, MoE, Program

WANTED_ROWS = 64
"""Rows whose results are computed at once."""


class Buffers:
    """Registers of float32 rows, their widths padded with zeros to 64; column tiles of quantised activations; scratch of every thread.
    ``widths``: what each layer's heads are padded to in the cache."""

    def __init__(self, program: Program, weights: Weights, batch: int, threads: int, widths: Mapping[int, int]) -> None:
        moe = _expert_registers(program, batch)
        self._strides = {name: 4 * padded(width) for name, width in {**program.widths, **{k: w for k, (w, _) in moe.items()}}.items()}
        self._rows = {name: padded(n, MANY) for name, n in {**capacities(program, batch), **{k: n for k, (_, n) in moe.items()}}.items()}
        used = max((op.used for op in program.ops if isinstance(op, MoE)), default=1)
        self._choices = [words(batch * used) for _ in range(2)]
        self.choices = tuple(choice.ctypes.data for choice in self._choices)
        """Addresses of the experts' numbers and weights."""
        columns = {k: padded(batch * n, MANY) // MANY * activation_bytes(k, MANY) for k, n in _quantised_widths(program, weights).items()}
        self.scratch_bytes = padded(_scratch(program, weights, widths), 4096)
        sizes = [self._strides[name] * rows for name, rows in self._rows.items()] + list(columns.values())
        total = sum(padded(size, 4096) for size in sizes) + threads * self.scratch_bytes
        self.arena = Arena(total)
        self._registers = {name: self.arena.take(self._strides[name] * rows) for name, rows in self._rows.items()}
        self._columns = {k: self.arena.take(size).ctypes.data for k, size in columns.items()}
        self.zeros = words(max(self._strides.values()) // 8)
        self._counts: dict[tuple[int, int], NDArray[np.int64]] = {}
        self.state = words(STATE_WORDS)
        self.state[SCRATCH] = self.arena.take(threads * self.scratch_bytes).ctypes.data
        self.state[SCRATCH_BYTES] = self.scratch_bytes

    def count(self, word: int, factor: int) -> int:
        """Address of a word that holds a count of the state, times ``factor``."""
        if factor == 1:
            return self.state[word : word + 1].ctypes.data
        return self._counts.setdefault((word, factor), words(8)).ctypes.data

    def set_count(self, word: int, n: int) -> None:
        """A count of the state, and all its multiples."""
        self.state[word] = n
        for (of, factor), cell in self._counts.items():
            if of == word:
                cell[0] = n * factor

    def address(self, register: str) -> int:
        """Of row 0 of a register."""
        return self._registers[register].ctypes.data

    def stride(self, register: str) -> int:
        """Bytes from one row of a register to the next."""
        return self._strides[register]

    def columns(self, width: int) -> int:
        """Address of the column tiles of activations of that width."""
        return self._columns[width]

    def rows(self, register: str, n: int, width: int) -> NDArray[np.float32]:
        """The first n rows of a register, as they lie in memory."""
        return self._registers[register].view(np.float32).reshape(self._rows[register], -1)[:n, :width]


def capacities(program: Program, batch: int) -> dict[str, int]:
    """How many rows a register holds: the batch's, or behind ``Last`` the wanted ones'."""
    wanted: set[str] = set()
    last = False
    for op in program.ops:
        last = last or isinstance(op, Last)
        if last:
            wanted.add(op.out)
    return {name: min(batch, WANTED_ROWS) if name in wanted else batch for name in program.widths}


def _expert_registers(program: Program, batch: int) -> dict[str, tuple[int, int]]:
    """Registers between the parts of a mixture of experts: width and rows, a row for each slot of a row of the batch."""
    ops = [op for op in program.ops if isinstance(op, MoE)]
    if not ops:
        return {}
    width, used = max(op.width for op in ops), max(op.used for op in ops)
    return {"moe.router": (max(op.experts for op in ops), batch), "moe.gate": (width, batch * used), "moe.up": (width, batch * used)}


def _matrices(program: Program, weights: Weights) -> list[tuple[Matrix, int]]:
    """Every matrix that is multiplied with, and how many rows to one of the batch."""
    out = [(weights.matrices[op.weight], 1) for op in program.ops if isinstance(op, Linear)]
    for op in program.ops:
        if isinstance(op, MoE):
            out += [(weights.matrices[name], op.used if name == op.down else 1) for name in (op.router, op.gate, op.up, op.down)]
    return out


def _quantised_widths(program: Program, weights: Weights) -> dict[int, int]:
    """Widths that activations are quantised in, and the most rows to one of the batch."""
    widths: dict[int, int] = {}
    for m, rows in _matrices(program, weights):
        if m.layout in LAYOUTS:
            widths[m.columns] = max(rows, widths.get(m.columns, 1))
    return widths


def _scratch(program: Program, weights: Weights, widths: Mapping[int, int]) -> int:
    """Bytes that a thread needs at most: 64 unpacked rows, or attention's tiles."""
    need = [4096]
    for m, _ in _matrices(program, weights):
        if m.layout in LAYOUTS:
            need.append(4 * (m.columns // 32) * LAYOUTS[m.layout].unpacked_bytes)
        else:
            need.append(4 * GROUP * SPAN)
    for op in program.ops:
        if isinstance(op, Attend):
            shape = op.heads, op.kv_heads, widths[op.layer]
            need += [rope_scratch(op.head_dim), few_scratch(*shape), many_scratch(*shape)]
        elif isinstance(op, MoE):
            need.append(route_scratch(op.experts))
    return max(need)


class Tables:
    """The per-call tables of a batch of at most ``batch`` rows, and the scratch of attention over few rows. ``state`` names them.

    Between two tokens caches are cold, and NumPy takes a microsecond and more for anything: one row is written word by word.
    """

    def __init__(self, program: Program, batch: int, state: NDArray[np.int64], widths: Mapping[int, int]) -> None:
        rows = padded(batch, MANY)
        self._state = state
        self._tokens, self._positions, self._pages, self._want = (words(rows) for _ in range(4))
        self._query_tiles = words(4 * rows).reshape(rows, 4)
        for word, table in ((TOKENS, self._tokens), (POSITIONS, self._positions), (PAGES, self._pages), (WANT, self._want)):
            state[word] = table.ctypes.data
        state[QUERY_TILES] = self._query_tiles.ctypes.data
        attends = [op for op in program.ops if isinstance(op, Attend)]
        self._partial = max((op.heads * partial_bytes(widths[op.layer]) for op in attends), default=0)
        self._key_tiles = 0

    def put(self, first: int, tokens: Sequence[int], position: int, table: int) -> None:
        """The rows of one line, from row ``first`` of the batch on."""
        n = len(tokens)
        if n == 1:
            self._tokens[first], self._positions[first], self._pages[first] = tokens[0], position, table
        else:
            self._tokens[first : first + n] = tokens
            self._positions[first : first + n] = np.arange(position, position + n)
            self._pages[first : first + n] = table

    def put_tiles(self, runs: Iterable[tuple[int, int, int, int]]) -> None:
        """The rows of every line, QUERIES at a time: first row, how many, the first's position, the line's page table."""
        tiles = [(first + i, min(QUERIES, n - i), at + i, table) for first, n, at, table in runs for i in range(0, n, QUERIES)]
        self._query_tiles[: len(tiles)] = tiles
        self._state[NQ] = len(tiles)

    def put_wanted(self, rows: Sequence[int]) -> None:
        """The rows of the batch that are wanted."""
        if len(rows) == 1:
            self._want[0] = rows[0]
        else:
            self._want[: len(rows)] = rows

    def grow_partials(self, key_tiles: int) -> None:
        """Make room for so many key tiles in every head of FEW rows."""
        if key_tiles > self._key_tiles:
            self._key_tiles, size = 0, padded(key_tiles, 16)  # none until all is in place: an interrupt may fall between any two lines
            self._partials = words(FEW * size * self._partial // 8)
            self._state[PARTIALS], self._state[KEY_TILES] = self._partials.ctypes.data, size
            self._key_tiles = size
