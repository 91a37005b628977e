"""Going back, with layers that can't always: a fake recurrent operation, which has no state but those that it was told to keep."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from localllm.backends.base import Chunk, Float, Options, Want
from localllm.backends.line import CHECKPOINTS, ROLLBACK
from localllm.backends.reference import ops
from localllm.backends.reference.session import ReferenceSession
from localllm.backends.saved import Reader, Writer
from localllm.model.program import Embed, Last, Program

VOCAB, WIDTH = 50, 4
TOKENS = np.random.default_rng(5).integers(0, VOCAB, 300).tolist()


@dataclass(frozen=True)
class Decay:
    """out[t] = x[t] + out[t-1] / 2: a state of one row."""

    x: str
    out: str
    layer: int


class Memory:
    """The states after some lengths: those of the last rows and those that are to be kept."""

    def __init__(self) -> None:
        self.states: dict[int, Float] = {0: np.zeros(WIDTH, np.float32)}
        self._marks: Sequence[int] = ()

    def push(self, first: int, x: Float) -> Float:
        state, out = self.states[first], np.empty_like(x)
        for t, row in enumerate(x):
            state = out[t] = row + state / np.float32(2)
            self.states[first + t + 1] = state.copy()
        end = first + len(x)
        few = range(end - len(x), end + 1) if len(x) <= ROLLBACK else (end,)
        self.states = {n: kept for n, kept in self.states.items() if n == 0 or n in few or n in self._marks}
        return out

    def reach(self, n: int) -> int:
        return max(length for length in self.states if length <= n)

    def cut(self, n: int) -> None:
        self.states = {length: state for length, state in self.states.items() if length <= n}

    def keep(self, marks: Sequence[int]) -> None:
        self._marks = list(marks)

    def memory(self) -> dict[int, int]:
        return {id(state): state.nbytes for state in self.states.values()}

    def pieces(self, n: int) -> Sequence[int]:
        return [4 * WIDTH]

    def save(self, out: Writer, n: int) -> None:
        out.piece(self.states[n])

    def load(self, source: Reader, n: int) -> None:
        self.states[n] = source.rows(1, WIDTH)[0]

    def copy(self, length: int) -> Memory:
        made = Memory()
        made.states, made._marks = dict(self.states), self._marks
        return made


@ops.run.register
def _(op: Decay, state: ops.State) -> None:
    x, start, parts = state.registers[op.x], 0, []
    for rows in state.rows:
        parts.append(rows.line.held[op.layer].push(rows.first, x[start : start + len(rows.tokens)]))
        start += len(rows.tokens)
    state.registers[op.out] = np.concatenate(parts)


@ops.remember.register
def _(op: Decay, kv_types: tuple[str, str]) -> ops.Held:
    return Memory()


class Weights:
    """One table of numbers."""

    table = np.random.default_rng(6).standard_normal((VOCAB, WIDTH)).astype(np.float32)

    def rows(self, name: str, ids: Sequence[int]) -> Float:
        return np.asarray(self.table[list(ids)])


@pytest.fixture
def session() -> Iterator[ReferenceSession]:
    listed: Any = (Embed("x", "table"), Decay("x", "y", 0), Decay("y", "z", 1), Last("z", "out"))
    program = Program(listed, dict.fromkeys(("x", "y", "z", "out"), WIDTH), {}, "out", VOCAB, 1000)
    weights: Any = Weights()
    opened = ReferenceSession(program, weights, Options(batch=512))
    yield opened
    opened.close()


def feed(session: ReferenceSession, line: Any, first: int, last: int) -> Float:
    return session.forward([Chunk(line, TOKENS[first:last], Want([last - first - 1]))]).logits[0]


def test_every_row_of_a_small_batch_can_be_returned_to(session: ReferenceSession) -> None:
    for n in range(200, 217):
        line = session.new_line()
        feed(session, line, 0, 200)
        whole = feed(session, line, 200, 216)
        assert line.truncate(n) == n == line.length
        if n < 216:
            assert np.array_equal(feed(session, line, n, 216), whole)


def test_of_a_large_batch_only_the_end(session: ReferenceSession) -> None:
    line = session.new_line()
    whole = feed(session, line, 0, 200)
    assert line.truncate(250) == 200
    assert line.truncate(199) == 0 == line.length
    assert np.array_equal(feed(session, line, 0, 200), whole)


def test_a_checkpoint_can_be_returned_to(session: ReferenceSession) -> None:
    line = session.new_line()
    feed(session, line, 0, 100)
    line.checkpoint()
    whole = feed(session, line, 100, 200)
    feed(session, line, 200, 300)
    assert line.truncate(99) == 0  # below it there is nothing but the start
    feed(session, line, 0, 100)
    assert line.truncate(100) == 100
    assert np.array_equal(feed(session, line, 100, 200), whole)
    assert line.truncate(150) == 0  # the mark went with the cut below it


def test_truncate_reaches_the_last_checkpoint_below(session: ReferenceSession) -> None:
    line = session.new_line()
    for n in (60, 120, 180):
        feed(session, line, n - 60, n)
        line.checkpoint()
    feed(session, line, 180, 300)
    for asked, reached in ((299, 180), (180, 180), (179, 120), (119, 60), (59, 0)):
        fork = line.fork()
        assert fork.truncate(asked) == reached
        fork.close()
    assert line.length == 300


def test_old_checkpoints_are_given_up(session: ReferenceSession) -> None:
    line = session.new_line()
    for n in range(20):
        feed(session, line, n, n + 1)
        line.checkpoint()
        line.checkpoint()
    feed(session, line, 20, 120)
    assert line.truncate(20 - CHECKPOINTS) == 0


def test_forks_and_saved_lines_go_on_alike(session: ReferenceSession) -> None:
    line, file = session.new_line(), io.BytesIO()
    feed(session, line, 0, 70)
    fork = line.fork()
    line.save(file)
    restored = session.restore(io.BytesIO(file.getvalue()))
    restored.checkpoint()
    whole = feed(session, line, 70, 120)
    assert np.array_equal(feed(session, fork, 70, 120), whole)
    assert np.array_equal(feed(session, restored, 70, 120), whole)
    assert restored.truncate(100) == 70 and restored.truncate(69) == 0 and fork.truncate(100) == 0
