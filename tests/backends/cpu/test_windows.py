"""Layers with a window keep only what a query can still see, now or behind a return; no bit tells."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localllm.backends.base import Float, Options, Session
from localllm.backends.cpu.pages import Page, Pool, Strand
from localllm.backends.cpu.records import TILE
from tests import tiny
from tests.backends import run

WINDOW, LENGTH = 70, 620
TOKENS = np.random.default_rng(2).integers(3, 300, LENGTH).tolist()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("tiny") / "a.gguf", "gemma3", layers=3, period=3, window=WINDOW)


@pytest.fixture(scope="module")
def whole(path: Path) -> Float:
    """The logits of a session that gives nothing back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Strand, "forget", lambda strand, length: None)
        with run.session(path, "cpu", Options(2, 1024)) as session:
            return run.feed(session, session.new_line(), TOKENS)


@pytest.fixture
def session(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """One where pages that are given back are spoilt."""
    release: Callable[[Pool, Page], None] = Pool.release

    def spoil(pool: Pool, page: Page) -> None:
        release(pool, page)
        if page.holders == 0:
            page.memory[:] = -1  # NaN

    monkeypatch.setattr(Pool, "release", spoil)
    with run.session(path, "cpu", Options(2, 1024)) as opened:
        yield opened


def strand(line: Any) -> Any:
    """The line's pages of layers with a window."""
    return next(strand for strand in line._strands if strand.kind.window)


def check(session: Session, line: Any, whole: Float, end: int) -> None:
    """The line goes on to ``end`` as if nothing had happened."""
    start = line.length
    assert np.array_equal(run.feed(session, line, TOKENS[start:end]), whole[start:end])


def test_there_are_two_kinds(session: Session) -> None:
    line: Any = session.new_line()
    assert [(s.kind.window, sorted(s.kind.layers)) for s in line._strands] == [(WINDOW, [0, 1]), (0, [2])]


@pytest.mark.parametrize("chunk", [1, 7, 40, 200])
def test_pages_behind_the_window_are_given_back(session: Session, whole: Float, chunk: int) -> None:
    line: Any = session.new_line()
    for end in range(chunk, LENGTH + 1, chunk):
        check(session, line, whole, end)
        assert len(strand(line)._pages) <= -(-(WINDOW + 16) // TILE) + 1
    full = next(s for s in line._strands if not s.kind.window)
    assert len(full._pages) == -(-line.length // TILE)
    made = len(strand(line).pool._free) + len(strand(line)._pages)
    assert made <= -(-(WINDOW + 16 + chunk) // TILE) + 1


@pytest.mark.parametrize("back", range(17))
def test_the_last_rows_can_be_returned_to(session: Session, whole: Float, back: int) -> None:
    line = session.new_line()
    for start in range(0, LENGTH - 60, 16):
        check(session, line, whole, start + 16)
    n = line.length - back
    assert line.truncate(n) == n
    check(session, line, whole, LENGTH)


def test_further_back_is_the_start(session: Session, whole: Float) -> None:
    line: Any = session.new_line()
    check(session, line, whole, 600)
    assert line.truncate(300) == 0 == line.length
    assert not strand(line)._pages
    check(session, line, whole, 300)


def test_short_lines_can_go_back_anywhere(session: Session, whole: Float) -> None:
    for n in (0, 1, 40, 64, 69, 85):
        line = session.new_line()
        check(session, line, whole, 86)
        assert line.truncate(n) == n
        check(session, line, whole, 200)


def test_a_checkpoint_keeps_its_window(session: Session, whole: Float) -> None:
    line: Any = session.new_line()
    for mark in (150, 400):
        check(session, line, whole, mark)
        line.checkpoint()
    for end in (500, 600):
        check(session, line, whole, end)
    for asked in (600, 560, 450, 400, 390):  # the last: as far back as the rows of a batch may go
        fork = line.fork()
        assert min(400, asked) <= fork.truncate(asked) <= asked
        check(session, fork, whole, LENGTH)
        fork.close()
    assert 150 <= line.truncate(300) < 300
    check(session, line, whole, LENGTH)
    assert line.truncate(100) == 0


def test_a_fork_keeps_its_window(session: Session, whole: Float) -> None:
    line: Any = session.new_line()
    check(session, line, whole, 250)
    fork = line.fork()
    other = fork.fork()
    check(session, line, whole, 600)
    other.close()
    assert fork.truncate(245) == 245
    check(session, fork, whole, LENGTH)
    line.close()
    fork.close()
    assert not strand(line)._pages and not strand(fork)._pages


@pytest.mark.parametrize("n", [1, 64, 100, 300, LENGTH])
def test_a_saved_line_has_only_its_window(session: Session, whole: Float, n: int) -> None:
    line, file = session.new_line(), io.BytesIO()
    check(session, line, whole, n)
    line.save(file)
    restored: Any = session.restore(io.BytesIO(file.getvalue()))
    assert len(strand(restored)._pages) <= 3
    back = min(n, 16)
    assert restored.truncate(n - back) == n - back
    check(session, restored, whole, LENGTH)


def test_a_line_that_went_back_to_the_edge_of_its_window_can_be_saved(session: Session, whole: Float) -> None:
    line, file = session.new_line(), io.BytesIO()
    check(session, line, whole, 600)
    lowest = next(n for n in range(600) if line.fork().truncate(n) == n and n)
    assert line.truncate(lowest) == lowest
    line.save(file)
    restored = session.restore(io.BytesIO(file.getvalue()))
    check(session, restored, whole, LENGTH)
    check(session, line, whole, LENGTH)


def test_a_window_that_begins_late_in_a_new_line(session: Session) -> None:
    """A fork and a restored line hold nothing of the first tiles; their tables are as long all the same."""
    many = (TOKENS * 8)[: 40 * TILE]
    line = session.new_line()
    for start in range(0, len(many), 640):
        run.feed(session, line, many[start : start + 640])
    saved = io.BytesIO()
    line.save(saved)
    saved.seek(0)
    others = line.fork(), session.restore(saved)
    expected = run.feed(session, line, TOKENS[:3])
    for other in others:
        assert min(strand(other)._pages) > 2 * 16
        assert np.array_equal(run.feed(session, other, TOKENS[:3]), expected)
