"""What each operation of a Program computes, one function per kind, as its docstring in program.py says.

Shapes: T rows of the batch, W wanted rows, D model width, H heads, K key/value heads, d head width, n positions of a line, F, E as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, NamedTuple, Protocol

import numpy as np

from localllm.backends.base import Float
from localllm.backends.line import Part
from localllm.backends.reference.kv import kept
from localllm.backends.reference.weights import Weights
from localllm.backends.saved import Reader, Writer
from localllm.model.program import GLU, Activation, Add, Attend, Embed, Last, Linear, MoE, RMSNorm, Rope
from localllm.model.rope import cos_sin


class Cache:
    """Keys and values of one layer of one line: (capacity, K*d) each, as their types leave them. All positions are kept, so that every
    length can be reached."""

    def __init__(self, width: int, d: int, kv_types: tuple[str, str]) -> None:
        self._d, self._types = d, kv_types
        self.keys = np.empty((0, width), np.float32)
        self.values = np.empty((0, width), np.float32)

    def put(self, first: int, k: Float, v: Float) -> tuple[Float, Float]:
        """Write rows from position ``first`` on; all keys and values up to their end."""
        k, v = kept(k, self._types[0], self._d, key=True), kept(v, self._types[1], self._d)
        end = first + len(k)
        if end > len(self.keys):
            self.keys, self.values = (_grown(held, max(end, 2 * len(held), 64)) for held in (self.keys, self.values))
        self.keys[first:end], self.values[first:end] = k, v
        return self.keys[:end], self.values[:end]

    def reach(self, n: int) -> int:
        """Any length."""
        return n

    def cut(self, n: int) -> None:
        """What is beyond is written over."""

    def keep(self, marks: Sequence[int]) -> None:
        """Everything is kept."""

    def pieces(self, n: int) -> Sequence[int]:
        """Keys, and values."""
        return [self.keys[:n].nbytes, self.values[:n].nbytes]

    def save(self, out: Writer, n: int) -> None:
        """Keys, and values."""
        out.piece(self.keys[:n])
        out.piece(self.values[:n])

    def load(self, source: Reader, n: int) -> None:
        """Keys, and values."""
        width = self.keys.shape[1]
        self.keys, self.values = source.rows(n, width), source.rows(n, width)

    def memory(self) -> dict[int, int]:
        """Bytes of both arrays."""
        return {id(self): self.keys.nbytes + self.values.nbytes}

    def copy(self, length: int) -> Cache:
        """A copy of the first ``length`` positions."""
        made = Cache(self.keys.shape[1], self._d, self._types)
        made.keys, made.values = self.keys[:length].copy(), self.values[:length].copy()
        return made


class Held(Part, Protocol):
    """What a layer remembers of a line."""

    def copy(self, length: int) -> Held:
        """A copy of the state after the first ``length`` positions."""


@singledispatch
def remember(op: object, kv_types: tuple[str, str]) -> Held | None:
    """What an operation needs of a new line, for types of keys and values; None if it has no memory."""
    return None


@remember.register
def _(op: Attend, kv_types: tuple[str, str]) -> Held:
    return Cache(op.kv_heads * op.head_dim, op.head_dim, kv_types)


class Line(Protocol):
    """A line as far as operations see it: what its layers remember."""

    @property
    def held(self) -> Mapping[int, Any]: ...
    def grow(self, n: int) -> None: ...


class Rows(NamedTuple):
    """A chunk: its tokens go to positions ``first`` on of its line; ``want``: rows of the chunk."""

    line: Line
    first: int
    tokens: list[int]
    want: list[int]


@dataclass(slots=True)
class State:
    """What operations work on. ``turns``: cosines and sines of this batch, by rotation and chunk."""

    weights: Weights
    rows: list[Rows]
    registers: dict[str, Float]
    turns: dict[tuple[Rope, int, int], Float] = field(default_factory=dict)


@singledispatch
def run(op: object, state: State) -> None:
    """Compute one operation: read its registers, write its output."""
    raise AssertionError(f"operation {type(op).__name__} has no function here")


@run.register
def embed(op: Embed, state: State) -> None:
    """Token ids -> (T, D)."""
    ids = [token for rows in state.rows for token in rows.tokens]
    state.registers[op.out] = state.weights.rows(op.weight, ids) * np.float32(op.scale)


@run.register
def norm(op: RMSNorm, state: State) -> None:
    """(T, D) -> (T, D)."""
    state.registers[op.out] = rms_norm(state.registers[op.x], state.weights[op.weight], op.eps)


@run.register
def linear(op: Linear, state: State) -> None:
    """(T, in) -> (T, out)."""
    out = state.registers[op.x] @ state.weights[op.weight].T
    state.registers[op.out] = out if op.bias is None else out + state.weights[op.bias]


@run.register
def attend(op: Attend, state: State) -> None:
    """q (T, H*d), k and v (T, K*d) -> (T, H*d); rows of different chunks don't see each other."""
    q = _heads(state, op.q, op, op.q_norm)
    k = _heads(state, op.k, op, op.k_norm)
    v = state.registers[op.v]
    out = np.empty_like(state.registers[op.q])
    start = 0
    for rows in state.rows:
        here = slice(start, start := start + len(rows.tokens))
        if op.rope is not None:
            turn = _turns(state, op.rope, rows)
            q[here], k[here] = rotate(q[here], turn, op.rope.kind), rotate(k[here], turn, op.rope.kind)
        keys, values = rows.line.held[op.layer].put(rows.first, k[here].reshape(v[here].shape), v[here])
        out[here] = attention(q[here], keys, values, rows.first, op)
    state.registers[op.out] = out


@run.register
def glu(op: GLU, state: State) -> None:
    """(T, F), (T, F) -> (T, F)."""
    state.registers[op.out] = activate(state.registers[op.gate], op.act) * state.registers[op.up]


@run.register
def moe(op: MoE, state: State) -> None:
    """(T, D) -> (T, D)."""
    x, weights = state.registers[op.x], state.weights
    chances = softmax(x @ weights[op.router].T)
    chosen = np.argsort(-chances, axis=1, kind="stable")[:, : op.used]
    share = np.take_along_axis(chances, chosen, axis=1)
    share /= share.sum(axis=1, keepdims=True)
    parts = np.empty((len(x), op.used, x.shape[1]), np.float32)
    for expert in range(op.experts):
        row, rank = np.nonzero(chosen == expert)
        hidden = activate(x[row] @ weights[op.gate][expert].T, op.act) * (x[row] @ weights[op.up][expert].T)
        parts[row, rank] = hidden @ weights[op.down][expert].T * share[row, rank, None]
    state.registers[op.out] = sum((parts[:, rank] for rank in range(1, op.used)), parts[:, 0])


@run.register
def add(op: Add, state: State) -> None:
    """(T, D), (T, D) -> (T, D)."""
    state.registers[op.out] = state.registers[op.a] + state.registers[op.b]


@run.register
def last(op: Last, state: State) -> None:
    """(T, n) -> (W, n)."""
    wanted: list[int] = []
    start = 0
    for rows in state.rows:
        wanted += [start + row for row in rows.want]
        start += len(rows.tokens)
    state.registers[op.out] = state.registers[op.x][np.asarray(wanted, np.intp)]


def rms_norm(x: Float, weight: Float, eps: float) -> Float:
    """x (..., D), weight (D,) -> (..., D)."""
    mean = np.mean(np.square(x), axis=-1, keepdims=True)
    return np.asarray(x / np.sqrt(mean + np.float32(eps)) * weight, np.float32)


def rotate(x: Float, turn: Float, kind: str) -> Float:
    """x (T, heads, d), turn (T, dim): cosines and sines -> x with its first ``dim`` values turned in pairs."""
    half = turn.shape[1] // 2
    cos, sin = turn[:, None, :half], turn[:, None, half:]
    pair = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if kind == "norm" else (slice(half), slice(half, 2 * half))
    out = x.copy()
    a, b = x[..., pair[0]], x[..., pair[1]]
    out[..., pair[0]], out[..., pair[1]] = a * cos - b * sin, a * sin + b * cos
    return out


def attention(q: Float, keys: Float, values: Float, first: int, op: Attend) -> Float:
    """q (T, H, d) at positions ``first`` on, keys and values (n, K*d) -> (T, H*d). Head h reads key/value head h // (H/K)."""
    T, n = len(q), len(keys)
    group = op.heads // op.kv_heads
    grouped = q.reshape(T, op.kv_heads, group, op.head_dim).transpose(1, 2, 0, 3)  # (K, H/K, T, d)
    k = keys.reshape(n, op.kv_heads, op.head_dim).transpose(1, 2, 0)[:, None]  # (K, 1, d, n)
    v = values.reshape(n, op.kv_heads, op.head_dim).transpose(1, 0, 2)[:, None]  # (K, 1, n, d)
    scores = grouped @ k * np.float32(op.scale)
    age = np.arange(first, first + T)[:, None] - np.arange(n)
    seen = (age >= 0) & (age < (op.window or n))
    out = softmax(np.where(seen, scores, np.float32(-np.inf))) @ v
    return np.asarray(out.transpose(2, 0, 1, 3).reshape(T, op.heads * op.head_dim))


def softmax(x: Float) -> Float:
    """Over the last axis; each row needs one finite value."""
    high = np.exp(x - x.max(axis=-1, keepdims=True, initial=np.float32(-np.inf)))
    return np.asarray(high / high.sum(axis=-1, keepdims=True))


def activate(x: Float, act: Activation) -> Float:
    """SiLU, or the tanh form of GELU."""
    if act == "silu":
        with np.errstate(over="ignore"):  # exp(-x) = inf gives the right 0
            return np.asarray(x / (1 + np.exp(-x)))
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
    return np.asarray(np.float32(0.5) * x * (1 + np.tanh(inner)))


def _heads(state: State, register: str, op: Attend, weight: str | None) -> Float:
    x = state.registers[register]
    split = x.reshape(len(x), x.shape[1] // op.head_dim, op.head_dim)
    return split.copy() if weight is None else rms_norm(split, state.weights[weight], op.eps)


def _turns(state: State, rope: Rope, rows: Rows) -> Float:
    key = (rope, rows.first, len(rows.tokens))
    if key not in state.turns:
        factors = None if rope.factors is None else state.weights[rope.factors]
        state.turns[key] = cos_sin(rope, factors, rows.first, len(rows.tokens))
    return state.turns[key]


def _grown(held: Float, capacity: int) -> Float:
    grown = np.zeros((capacity, held.shape[1]), np.float32)
    grown[: len(held)] = held
    return grown
