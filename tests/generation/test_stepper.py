from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localllm.errors import BackendError, ContextFullError, OptionError
from localllm.generation import sampling
from localllm.generation.options import make
from localllm.generation.stepper import check_ids, plain
from tests.generation.fakes import VOCAB, FakeSession, noise, stepper


@pytest.mark.parametrize("batch", [1, 2, 7, 10, 512])
@pytest.mark.parametrize("last", [1, 3, 10])
def test_chunks_change_nothing(batch: int, last: int) -> None:
    tokens = list(range(10))
    session = FakeSession(batch=batch)
    with stepper(session) as line:
        got = line.feed(tokens, last=last)
        assert line.length == 10
    np.testing.assert_array_equal(got, [noise(tokens[: n + 1]) for n in range(10 - last, 10)])
    assert sum(session.chunks) == 10 and max(session.chunks) <= batch
    assert sum(session.rows) == last
    assert not session.lines


def test_feeding_twice_continues_the_line() -> None:
    with stepper(FakeSession()) as line:
        line.feed([1, 2])
        np.testing.assert_array_equal(line.feed([3])[0], noise([1, 2, 3]))


def test_parts_are_never_all_in_memory() -> None:
    with stepper(FakeSession(batch=4)) as line:
        assert [part.shape for part in line.parts(range(10), last=7)] == [(1, VOCAB), (4, VOCAB), (2, VOCAB)]


def test_progress_is_told_of_tokens() -> None:
    told: list[tuple[str, int, int]] = []
    with stepper(FakeSession(batch=4)) as line:
        line.feed(range(10), progress=lambda *what: told.append(what))
    assert told == [("prompt", 0, 10), ("prompt", 4, 10), ("prompt", 8, 10), ("prompt", 10, 10)]


def test_a_full_context_is_refused_before_anything_is_computed() -> None:
    session = FakeSession()
    with stepper(session, context=8) as line:
        line.feed(range(5))
        with pytest.raises(ContextFullError, match=r"4 tokens do not fit into the context of 8, which has room for 3: 1 too many"):
            line.feed(range(4))
        assert session.chunks == [5]
        line.feed(range(3))


@pytest.mark.parametrize("tokens", [[], [[1]], [-1], [VOCAB], [1.5], ["a"], [True, False], "text"])
def test_what_is_no_token_never_reaches_a_backend(tokens: Any) -> None:
    session = FakeSession()
    with stepper(session) as line, pytest.raises(OptionError, match="expected"):
        line.feed(tokens)
    assert not session.chunks


def test_the_id_that_does_not_exist_is_named() -> None:
    with pytest.raises(OptionError, match=r"token 300 is not in the vocabulary; expected 0 to 259"):
        check_ids([1, 300, 400], VOCAB)
    assert check_ids(np.array([1, 2], np.int32), VOCAB) == [1, 2]


@pytest.mark.parametrize("last", [0, 4, -1])
def test_more_rows_than_tokens_are_refused(last: int) -> None:
    with stepper(FakeSession()) as line, pytest.raises(OptionError, match="expected 1 to 3"):
        line.feed([1, 2, 3], last=last)


def test_a_closed_line_is_an_error_and_closing_twice_is_none() -> None:
    line = stepper(FakeSession())
    line.close()
    line.close()
    with pytest.raises(BackendError, match="closed"):
        line.feed([1])


def test_plain_steps_feed_each_token_once() -> None:
    session = FakeSession()
    with stepper(session) as line:
        step = plain(line, [1, 2, 3])
        state = sampling.begin(make({"temperature": 0}), 0).after([1, 2, 3])
        said: list[int] = []
        for _ in range(4):
            found, state = step(state)
            said += found
    known = [1, 2, 3]
    for _ in range(4):
        known.append(int(noise(known).argmax()))
    assert said == known[3:]
    assert session.chunks == [3, 1, 1, 1]
    assert state.count == 7
