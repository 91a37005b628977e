"""A Program to tapes of kernels: which kernel does what, and where threads have to meet.

A Program has two parts, before and after its ``Last``: the rows of the batch and those whose results are wanted. Each part is lowered once
for every number of columns that kernels exist for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import MOST
from localllm.backends.cpu import arguments as ops
from localllm.backends.cpu import arguments_matmul as matrices
from localllm.backends.cpu.arena import words
from localllm.backends.cpu.buffers import Buffers
from localllm.backends.cpu.cache import Storage
from localllm.backends.cpu.kernel_cache import KernelId
from localllm.backends.cpu.layout import FEW, FLOATS, MANY, activation_bytes
from localllm.backends.cpu.pages import Kind
from localllm.backends.cpu.records import LINE, ROWS, TAPE_WORDS, WANTED, float_bits
from localllm.backends.cpu.results import Lists
from localllm.backends.cpu.threads import Pace
from localllm.backends.cpu.weights import Matrix, Weights
from localllm.model.program import GLU, Add, Attend, Embed, Last, Linear, MoE, Op, Program, RMSNorm, Rope, inputs

COLUMNS = (1, 2, 4, FEW, MANY)
"""Column tiles that kernels exist for."""


def column_tile(rows: int) -> int:
    """Which kernels serve so many rows: up to FEW those that unpack while they multiply, above that those that unpack once for all."""
    return next((n for n in COLUMNS if rows <= n), MANY) if rows <= FEW else MANY


@dataclass(slots=True)
class Row:
    """A kernel with its arguments, and what it reads and writes: registers and other memory, by name."""

    kernel: KernelId
    words: list[int]
    reads: Iterable[str]
    writes: Iterable[str]


@dataclass(slots=True)
class Tape:
    """Rows as the executor reads them, and all memory that they name."""

    rows: NDArray[np.int64]
    counters: NDArray[np.int64]
    pace: Pace
    kinds: list[str]
    """What each row does, for profiles."""
    keep: list[object] = field(default_factory=list)


def parts(program: Program) -> tuple[Sequence[Op], Sequence[Op]]:
    """The operations on the batch's rows, and those from the first ``Last`` on."""
    first = next((i for i, op in enumerate(program.ops) if isinstance(op, Last)), len(program.ops))
    return program.ops[:first], program.ops[first:]


def assemble(rows: Sequence[Row], addresses: dict[KernelId, int]) -> Tape:
    """The table of a tape. Threads meet before a row that touches what an earlier one since the last meeting wrote or that writes what
    one has read."""
    barriers = _barriers(rows)
    size = max(len(row.words) for row in rows)
    records = words(size * len(rows)).reshape(len(rows), size)
    counters = words(len(rows) * LINE // 8).reshape(len(rows), -1)
    table = words(TAPE_WORDS * len(rows)).reshape(len(rows), TAPE_WORDS)
    for i, row in enumerate(rows):
        records[i, : len(row.words)] = row.words
        table[i] = addresses[row.kernel], records[i].ctypes.data, counters[i].ctypes.data, barriers[i]
    return Tape(table, counters, Pace(barriers), [_kind(row.kernel) for row in rows], [records])


def _kind(kernel: KernelId) -> str:
    return " ".join(str(part) for part in kernel if not isinstance(part, int))


def _barriers(rows: Sequence[Row]) -> list[bool]:
    out = [False] * len(rows)
    read: set[str] = set()
    written: set[str] = set()
    for i, row in enumerate(rows):
        touches, changes = set(row.reads), set(row.writes)
        if (touches | changes) & written or changes & read:
            out[i - 1] = True
            read, written = set(), set()
        read |= touches
        written |= changes
    out[-1] = True
    return out


def _places(kinds: Sequence[Kind]) -> dict[int, dict[str, int]]:
    """Where each layer's keys and values lie, in the words of a record."""
    return {
        layer: {"table_step": 8 * len(kinds), "table_offset": 8 * column, "layer_offset": offset, **layout.words()}
        for column, kind in enumerate(kinds)
        for layer, (offset, _, layout) in kind.layers.items()
    }


class Lowering:
    """Rows of one part of a Program for column tiles of n."""

    def __init__(self, program: Program, weights: Weights, buffers: Buffers, ropes: Sequence[Rope], lists: Lists, storage: Storage) -> None:
        self._program, self._weights, self._buffers, self._ropes, self._lists = program, weights, buffers, ropes, lists
        self._places, self.layouts = _places(storage.kinds), storage.layouts
        reads = Counter(name for op in program.ops for name in inputs(op))
        writes = Counter(op.out for op in program.ops)
        self.read_once = {name for name in writes if reads[name] == writes[name]}
        """Registers that are read once each time they are written: what reads them may be fused with what writes them."""

    def rows(self, part: int, n: int) -> list[Row]:
        """The tape's rows: part 0 before ``Last``, part 1 from there on."""
        emitter = _Emitter(self, n, ROWS if part == 0 else WANTED)
        ops = parts(self._program)[part]
        i = 0
        while i < len(ops):
            i += emitter.emit(ops[i], ops[i + 1] if i + 1 < len(ops) else None)
        if part == 1:
            emitter.add(self._choose())
        return emitter.out

    def _choose(self) -> Row:
        result, buffers = self._program.result, self._buffers
        fields = {"x": buffers.address(result), "x_stride": buffers.stride(result), "n": self._program.vocab}
        fields |= {"most": MOST, "logits": self._lists.logits, "ids": self._lists.ids}
        return Row(("choose", "likeliest"), ops.LIKELIEST.fill(**fields), [result], ["likeliest"])

    def matrix(self, name: str) -> Matrix:
        """A packed weight."""
        return self._weights.matrices[name]

    def vector(self, name: str | None) -> int:
        """Address of a vector; 0 for None."""
        return 0 if name is None else self._weights.vectors[name].ctypes.data


class _Emitter:
    def __init__(self, lowering: Lowering, n: int, count: int) -> None:
        self.of, self.n, self.buffers = lowering, n, lowering._buffers
        self.count_word = count
        self.count = self.buffers.count(count, 1)
        self.out: list[Row] = []
        self.quantised: dict[int, str] = {}

    def emit(self, op: Op, following: Op | None) -> int:
        """Rows for an operation, and for the next where both are one kernel; how many were taken."""
        if isinstance(op, Linear):
            return self.linear(op, following)
        columns = self._quantised_width(following, op.out)
        if isinstance(op, RMSNorm) and columns:
            self.quantise(op.out, columns, op)
            return 1
        if isinstance(op, MoE):
            self.experts(op)
            return 1
        if isinstance(op, GLU) and columns and op.out in self.of.read_once:
            self.gated(op, columns)
            return 1
        for row in self._simple(op):
            self.add(row)
        return 1

    def add(self, row: Row) -> None:
        """One more row; activations of registers that it writes are stale."""
        self.out.append(row)
        self.quantised = {k: name for k, name in self.quantised.items() if name not in row.writes}

    def _quantised_width(self, op: Op | None, x: str) -> int:
        """The width that an operation wants the register quantised in; 0 where it does not."""
        if not isinstance(op, Linear) or op.x != x or self.of.matrix(op.weight).layout in FLOATS:
            return 0
        return self.of.matrix(op.weight).columns

    def _at(self, name: str, register: str) -> dict[str, int]:
        return {name: self.buffers.address(register), f"{name}_stride": self.buffers.stride(register)}

    def quantise(self, x: str, columns: int, norm: RMSNorm | None = None, single: int = 0) -> None:
        """Column tiles of a register, normalised first where asked; ``single``: tiles of one, for so many rows to one of the batch."""
        source, n = norm.x if norm else x, 1 if single else self.n
        count = self.buffers.count(self.count_word, single or 1)
        fields = {**self._at("x", source), **self._at("normed", x)}
        fields |= {"norm": self.of.vector(norm.weight) if norm else 0, "eps": float_bits(norm.eps) if norm else 0, "n": columns}
        fields |= {"blocks": columns // 32, "out": self.buffers.columns(columns), "out_bytes": activation_bytes(columns, n)}
        writes = [f"columns {columns}"] + ([x] if norm else [])
        self.add(Row(("quantise", "rows", n), matrices.QUANTISE.fill(**fields, rows=count), [source], writes))
        self.quantised.pop(columns, None)
        if not single:
            self.quantised[columns] = x

    def gated(self, op: GLU, columns: int) -> None:
        """Column tiles of a gated unit, whose register nobody else reads."""
        fields = {**self._at("gate", op.gate), **self._at("up", op.up), "blocks": columns // 32}
        fields |= {"out": self.buffers.columns(columns), "out_bytes": activation_bytes(columns, self.n), "rows": self.count}
        self.add(Row(("quantise", "gated", op.act, self.n), matrices.GATED.fill(**fields), [op.gate, op.up], [f"columns {columns}"]))
        self.quantised[columns] = op.out

    def linear(self, op: Linear, following: Op | None) -> int:
        """A matrix, together with the addition of a residual that follows it."""
        once = op.bias is None and op.out in self.of.read_once
        fused = following if once and isinstance(following, Add) and op.out in (following.a, following.b) else None
        matrix, init, reads, out = self.of.matrix(op.weight), self._init(op), [], op.out
        if fused:
            other = fused.b if fused.a == op.out else fused.a
            init, reads, out = self._at("init", other), [other], fused.out
        fields = {"w": matrix.address, "records": matrix.records, "groups": matrix.groups, **init, **self._at("out", out)}
        if matrix.layout in FLOATS:
            fields |= {"x": self.buffers.address(op.x), "x_bytes": self.buffers.stride(op.x)}
            kernel: KernelId = ("floats", "many", matrix.layout) if self.n == MANY else ("floats", "few", matrix.layout, min(self.n, 4))
            source = op.x
        else:
            if self.quantised.get(matrix.columns) != op.x:
                self.quantise(op.x, matrix.columns)
            fields |= {"x": self.buffers.columns(matrix.columns), "x_bytes": activation_bytes(matrix.columns, self.n)}
            kernel = ("matmul", "many", matrix.layout) if self.n == MANY else ("matmul", "few", matrix.layout, self.n)
            source = f"columns {matrix.columns}"
        self.add(Row(kernel, matrices.MATMUL.fill(**fields, rows=self.count), [source, *reads], [out]))
        return 2 if fused else 1

    def experts(self, op: MoE) -> None:
        """Router, choice, gate and up of the chosen experts, their product, and the weighted sum of down."""
        router, gate, up = "moe.router", "moe.gate", "moe.up"
        self.linear(Linear(op.x, router, op.router), None)
        ids, weights = self.buffers.choices
        choice = {**self._at("x", router), "experts": op.experts, "used": op.used, "ids": ids, "weights": weights}
        self.add(Row(("moe", "route"), ops.ROUTE.fill(**choice, rows=self.count), [router], ["moe.choice"]))
        for name, out in ((op.gate, gate), (op.up, up)):
            self._expert("rows", op, name, op.x, out, 1)
        count = self.buffers.count(self.count_word, op.used)
        fields = {**self._at("gate", gate), **self._at("up", up), **self._at("out", gate), "n": op.width, "rows": count}
        self.add(Row(("glu", "glu", op.act), ops.GLU.fill(**fields), [up], [gate]))
        self._expert("total", op, op.down, gate, op.out, op.used)

    def _expert(self, factory: str, op: MoE, weight: str, x: str, out: str, rows: int) -> None:
        m = self.of.matrix(weight)
        ids, weights = self.buffers.choices
        fields = {"w": m.address, "expert_bytes": m.bytes // op.experts, "records": m.records, "groups": m.groups, "used": op.used}
        fields |= {"ids": ids, "weights": weights, "zeros": self.buffers.zeros.ctypes.data, "rows": self.count, **self._at("out", out)}
        if m.layout in FLOATS:
            fields |= {"x": self.buffers.address(x), "x_bytes": self.buffers.stride(x)}
            source = x
        else:
            self.quantise(x, m.columns, single=rows)
            fields |= {"x": self.buffers.columns(m.columns), "x_bytes": activation_bytes(m.columns, 1)}
            source = f"columns {m.columns}"
        self.add(Row(("experts", factory, m.layout), matrices.EXPERTS.fill(**fields), [source, "moe.choice"], [out]))

    def _init(self, op: Linear) -> dict[str, int]:
        return {"init": self.of.vector(op.bias) or self.buffers.zeros.ctypes.data, "init_stride": 0}

    def _simple(self, op: Op) -> Iterator[Row]:
        at, widths = self._at, self.of._program.widths
        if isinstance(op, Embed):
            m = self.of.matrix(op.weight)
            fields = {"w": m.address, "records": m.records, "scale": float_bits(op.scale), **at("out", op.out)}
            yield Row(("embed", "rows", m.layout), matrices.EMBED.fill(**fields), [], [op.out])
        elif isinstance(op, RMSNorm):
            fields = {**at("x", op.x), **at("out", op.out), "weight": self.of.vector(op.weight), "eps": float_bits(op.eps)}
            yield Row(("norm", "rms_norm"), ops.RMS_NORM.fill(**fields, n=widths[op.x], rows=self.count), [op.x], [op.out])
        elif isinstance(op, GLU):
            fields = {**at("gate", op.gate), **at("up", op.up), **at("out", op.out), "n": widths[op.out]}
            yield Row(("glu", "glu", op.act), ops.GLU.fill(**fields, rows=self.count), [op.gate, op.up], [op.out])
        elif isinstance(op, Add):
            fields = {**at("a", op.a), **at("b", op.b), **at("out", op.out), "n": widths[op.out]}
            yield Row(("norm", "add"), ops.ADD.fill(**fields, rows=self.count), [op.a, op.b], [op.out])
        elif isinstance(op, Last):
            fields = {**at("x", op.x), **at("out", op.out), "bytes": self.buffers.stride(op.x)}
            yield Row(("embed", "gather"), matrices.GATHER.fill(**fields), [op.x], [op.out])
        elif isinstance(op, Attend):
            yield from self._attend(op)
        else:
            raise AssertionError(op)

    def _attend(self, op: Attend) -> Iterator[Row]:
        at, cache, layout = self._at, f"cache {op.layer}", self.of.layouts[op.layer]
        types = layout.k, layout.v
        shape = {"heads": op.heads, "kv_heads": op.kv_heads, "head_dim": op.head_dim, **self.of._places[op.layer]}
        rope = {"dim": op.rope.dim if op.rope else 0, "rope": self.of._ropes.index(op.rope) if op.rope else 0}
        norms = {"q_norm": self.of.vector(op.q_norm), "k_norm": self.of.vector(op.k_norm)}
        numbers = {"eps": float_bits(op.eps), "scale": float_bits(op.scale)}
        store = ops.ROPE_STORE.fill(**at("q", op.q), **at("k", op.k), **at("v", op.v), **shape, **rope, **norms, **numbers, rows=self.count)
        yield Row(("rope", "rope_store", op.rope.kind if op.rope else "none", *types), store, [op.k, op.v], [op.q, cache])
        words_ = ops.ATTEND.fill(**at("q", op.q), **at("out", op.out), **shape, window=op.window, rows=self.count)
        if self.n == MANY:
            yield Row(("attention_many", "attend_many", *types), words_, [op.q, cache], [op.out])
        else:
            yield Row(("attention_few", "attend_few", op.heads // op.kv_heads, *types), words_, [op.q, cache], ["partials"])
            yield Row(("attention_few", "merge_few"), words_, ["partials"], [op.out])
