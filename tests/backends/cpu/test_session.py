"""Whole forward passes of tiny models: near the reference, and the same bits however the work is cut."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localllm.backends.base import Chunk, Float, Options, Want, likeliest
from localllm.backends.cpu import pages
from localllm.errors import BackendError
from tests import tiny
from tests.backends import run

TOKENS = [int(t) for t in np.random.default_rng(0).integers(3, 200, 150)]
"""Longer than a page, a window, and every tile."""
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"type": "Q4_K", "embed": 256, "ff": 512, "head_dim": 32, "types": {"attn_v.weight": "Q6_K", "token_embd.weight": "Q5_K"}},
    "odd": {"type": "F16", "embed": 60, "heads": 3, "kv_heads": 1, "ff": 100, "bias": True},
    "experts": {"type": "Q8_0", "embed": 64, "ff": 96, "experts": 5},
    "qwen2": {"type": "Q5_0", "embed": 96, "heads": 6, "kv_heads": 2},
    "qwen3": {"type": "IQ4_NL", "head_dim": 64},
    "gemma3": {"type": "Q4_0", "layers": 7, "window": 16, "head_dim": 32},
}
CLOSE = 0.15
"""Error over the standard deviation of the logits: activations of 8 bits in a random model; a wrong kernel gives 1 and more."""


@pytest.fixture(scope="module", params=sorted(MODELS))
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family = request.param if request.param in tiny.FAMILIES else "llama"
    path: Path = tmp_path_factory.mktemp("models") / f"{request.param}.gguf"
    tiny.write(path, family, **MODELS[request.param])
    return path


def all_logits(path: Path, threads: int, batch: int, sizes: Sequence[int] = ()) -> Float:
    """Logits of every token, fed in pieces of these sizes, then of ``batch``."""
    with run.session(path, "cpu", Options(threads, batch)) as session:
        line, at = session.new_line(), 0
        found: list[Float] = []
        while at < len(TOKENS):
            n = sizes[len(found)] if len(found) < len(sizes) else batch
            found.append(run.feed(session, line, TOKENS[at : at + n]))
            at += n
        return np.concatenate(found)


def test_near_the_reference(path: Path) -> None:
    with run.session(path) as session:
        exact = run.logits(session, TOKENS, len(TOKENS))
    found = all_logits(path, 2, 512)
    error = np.sqrt(np.mean(np.square(found - exact))) / exact.std()
    assert error < (1e-3 if path.stem == "odd" else CLOSE), error


def test_nothing_changes_a_bit(path: Path) -> None:
    whole = all_logits(path, 1, 512)
    for threads, batch, sizes in ((2, 512, ()), (3, 64, ()), (2, 7, ()), (1, 1, ()), (2, 40, (1, 2, 3, 5, 8, 13, 21))):
        assert np.array_equal(all_logits(path, threads, batch, sizes), whole), (threads, batch, sizes)


def test_lines_do_not_touch_each_other(path: Path) -> None:
    whole = all_logits(path, 2, 512)
    with run.session(path, "cpu", Options(2, 128)) as session:
        a = session.new_line()
        run.feed(session, a, TOKENS[:70])
        b = a.fork()
        c = session.new_line()
        out = session.forward([Chunk(a, TOKENS[70:75], Want([4])), Chunk(c, TOKENS[:9], Want([0, 8])), Chunk(b, TOKENS[90:99], Want())])
        assert np.array_equal(out.logits[0][0], whole[74])
        assert np.array_equal(out.logits[1], whole[[0, 8]])
        assert out.logits[2].shape == (0, whole.shape[1])
        assert b.truncate(70) == 70
        assert np.array_equal(run.feed(session, b, TOKENS[70:100]), whole[70:100])
        assert np.array_equal(run.feed(session, a, TOKENS[75:100]), whole[75:100])
        start = a.truncate(30)
        assert start == (0 if path.stem == "gemma3" else 30)  # its window is gone
        assert np.array_equal(run.feed(session, a, TOKENS[start:60]), whole[start:60])


def test_pages_taken_in_several_threads_are_different_ones() -> None:
    pool = pages.Pool(4096)
    found: list[list[int]] = [[] for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=_take, args=(pool, some, 1000)) for some in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len({address for some in found for address in some}) == 4000


def _take(pool: pages.Pool, found: list[int], n: int) -> None:
    found += [pool.take().memory.ctypes.data for _ in range(n)]


def test_the_likeliest_are_those_of_the_logits(path: Path) -> None:
    with run.session(path, "cpu", Options(2, 128)) as session:
        whole, few, one = session.new_line(), session.new_line(), session.new_line()
        for n in (1, 4, 90, 7):  # one job for both parts, and two; more wanted rows than are computed at once
            tokens, rows = TOKENS[whole.length : whole.length + n], list(range(n))
            outputs = session.forward([Chunk(whole, tokens, Want(rows))])
            mixed = session.forward([Chunk(few, tokens, Want(rows, 40)), Chunk(one, tokens[-1:], Want([0]))])
            assert outputs.likeliest == [[]] and mixed.likeliest[1] == [] and len(mixed.logits[0]) == 0
            assert mixed.likeliest[0] == [likeliest(row, 40) for row in outputs.logits[0]]


def test_pages_are_used_again(path: Path) -> None:
    with run.session(path, "cpu", Options(1, 64)) as session:
        first = session.new_line()
        before = run.feed(session, first, TOKENS[:50])
        first.close()
        again = session.new_line()
        assert np.array_equal(run.feed(session, again, TOKENS[:50]), before)
        assert not session._engine.storage.pools[0]._free  # type: ignore[attr-defined]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    tiny.write(tmp_path / "a.gguf")
    return tmp_path / "a.gguf"


def test_bad_batches_are_refused(small: Path) -> None:
    with run.session(small, "cpu", Options(1, 8)) as session, run.session(small, "cpu", Options(1, 8)) as other:
        line, foreign, closed = session.new_line(), other.new_line(), session.new_line()
        closed.close()
        for chunk, word in (
            (Chunk(line, [5] * 9), "9 rows"),
            (Chunk(line, [10**6]), "token 1000000"),
            (Chunk(line, [-1]), "token -1"),
            (Chunk(line, [5], Want([1])), "wanted"),
            (Chunk(line, [5], Want([0], 65)), "65 of the likeliest"),
            (Chunk(foreign, [5]), "line"),
            (Chunk(closed, [5]), "line"),
        ):
            with pytest.raises(BackendError, match=word):
                session.forward([chunk])
        with pytest.raises(BackendError, match="twice"):
            session.forward([Chunk(line, [5]), Chunk(line, [6])])
        assert line.length == 0
        session.close()
        with pytest.raises(BackendError, match="closed"):
            session.forward([Chunk(line, [5])])


def test_an_empty_batch(small: Path) -> None:
    with run.session(small, "cpu", Options(1, 8)) as session:
        assert session.forward([]).logits == []
        assert session.forward([Chunk(session.new_line(), [])]).logits[0].shape[0] == 0


def test_rows_that_are_wanted_twice(small: Path) -> None:
    with run.session(small, "cpu", Options(2, 5)) as session:
        line = session.new_line()
        found = session.forward([Chunk(line, [5, 6, 7, 8, 9], Want([0, 1, 2, 3, 4, 0, 1, 2]))]).logits[0]
        assert found.shape[0] == 8
        assert np.array_equal(found[5:], found[:3])


@pytest.mark.parametrize("where", ["take", "set"])
def test_an_interrupt_while_a_line_gets_pages(small: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    tokens = list(range(5, 85))
    with run.session(small, "cpu", Options(2, 128)) as session:
        whole = run.logits(session, [*tokens, 5], 1)
        line = session.new_line()
        run.feed(session, line, tokens, [0])
        other = line.fork()
        target = (pages.Pool, "take") if where == "take" else (pages.Strand, "_set")
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(target[0], target[1], interrupted)
            run.feed(session, other, [7], [0])
        for each in (other, line):
            assert np.array_equal(run.feed(session, each, [5], [0]), whole[-1:])


def test_a_fork_shares_no_page_that_was_only_reserved(small: Path) -> None:
    with run.session(small, "cpu", Options(1, 256)) as session:
        whole = run.feed(session, session.new_line(), TOKENS)
        line = session.new_line()
        line.reserve(150)  # type: ignore[attr-defined]  # what an interrupted call leaves
        fork = line.fork()
        assert np.array_equal(run.feed(session, line, TOKENS), whole)
        run.feed(session, fork, TOKENS[::-1])
        assert line.truncate(100) == 100
        assert np.array_equal(run.feed(session, line, TOKENS[100:]), whole[100:])


def test_closing_gives_memory_back(small: Path) -> None:
    with run.session(small, "cpu", Options(1, 8)) as session:
        engine = weakref.ref(session._engine)  # type: ignore[attr-defined]
        run.feed(session, session.new_line(), [5])
    gc.collect()
    assert engine() is None
