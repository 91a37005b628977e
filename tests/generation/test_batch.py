"""Several answers to one prompt: each as it would be alone, in as few batches as can be, and no line left open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from localllm.backends.base import Chunk, Outputs
from localllm.errors import ContextFullError
from localllm.generation.batch import Streams
from localllm.generation.options import make
from localllm.generation.stream import Job, Stream
from tests.generation.fakes import BOT, END, FakeDecoder, FakeSession, Rule, noise, saying, stepper

PROMPT = [1, 2, BOT]
WILD: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 11}


class CountingSession(FakeSession):
    """Remembers how many lines were in each batch."""

    def __init__(self, rule: Rule = noise, batch: int = 512) -> None:
        super().__init__(rule, batch)
        self.batches: list[int] = []

    def forward(self, batch: Sequence[Chunk]) -> Outputs:
        self.batches.append(len(batch))
        return super().forward(batch)


def job(session: FakeSession, context: int = 4096, **options: Any) -> Job:
    return Job(
        line=lambda: stepper(session, context),
        prompt=PROMPT,
        options=make({**WILD, **options}),
        decoder=FakeDecoder(),
        ends=frozenset({END}),
        context=context,
    )


def several(session: FakeSession, n: int, **given: Any) -> Streams:
    return Streams(job(session, **given), [FakeDecoder() for _ in range(n)])


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 12},
        {"max_tokens": 300},
        {"max_tokens": 20, "completion": 3},
        {"max_tokens": 20, "repeat_penalty": 1.5, "dry_multiplier": 1.0, "dry_allowed_length": 1, "logprobs": 2},
        {"max_tokens": 20, "mirostat": 2, "mirostat_tau": 3.0},
        {"max_tokens": 20, "xtc_probability": 0.5, "xtc_threshold": 0.01, "top_k": 40},
        {"max_tokens": 20, "stop": "e", "stop_token_ids": [40, 41, 42]},
        {"context": 9},
    ],
)
def test_each_answer_is_what_it_would_be_alone(options: dict[str, Any]) -> None:
    session = CountingSession()
    together = several(session, 4, **options).run()
    assert not session.lines
    first = options.get("completion", 0)
    assert [result.completion for result in together] == [first + n for n in range(4)]
    for result in together:
        alone = Stream(job(FakeSession(), **{**options, "completion": result.completion})).run()
        assert (result.text, result.tokens, result.finish_reason, result.stop) == (
            alone.text,
            alone.tokens,
            alone.finish_reason,
            alone.stop,
        )
        assert (result.seed, result.logprobs, result.usage) == (alone.seed, alone.logprobs, alone.usage)
    assert len({result.tokens for result in together}) > 1


def test_the_prompt_is_computed_once_and_each_step_is_one_batch() -> None:
    session = CountingSession()
    results = several(session, 3, max_tokens=5, logit_bias={END: -float("inf")}).run()
    assert session.batches == [1, 3, 3, 3, 3]
    assert session.chunks == [3] + [1] * 12
    assert [len(result.tokens) for result in results] == [5, 5, 5]


def test_an_answer_that_ended_is_in_no_further_batch() -> None:
    # Each answer is ended by its own length: tokens above 127 end it.
    session = CountingSession()
    results = several(session, 5, max_tokens=30, stop_token_ids=list(range(128, 256))).run()
    lengths = sorted(len(result.tokens) for result in results)
    assert lengths[0] < lengths[-1]
    assert session.batches == [1] + [sum(length > step for length in lengths) for step in range(1, lengths[-1])]


def test_more_answers_than_a_batch_has_rows() -> None:
    session = CountingSession(batch=4)
    together = several(session, 6, max_tokens=3, ignore_eos=True).run()
    assert session.batches == [1, 4, 2, 4, 2]
    assert [r.tokens for r in together] == [r.tokens for r in several(FakeSession(), 6, max_tokens=3, ignore_eos=True).run()]


def test_events_are_told_apart() -> None:
    with several(FakeSession(saying("hello")), 2, temperature=0) as stream:
        events = list(stream)
    for n in range(2):
        own = [event for event in events if event.completion == n]
        assert "".join(event.text for event in own) == "hello"
        assert own[-1].result is not None and own[-1].result.text == "hello"
        assert own[-1].result == stream.results[n]
    assert [event.completion for event in events[:4]] == [0, 1, 0, 1]


def test_one_answer_may_be_asked_for_as_several() -> None:
    (result,) = several(FakeSession(), 1, max_tokens=9).run()
    assert result.tokens == Stream(job(FakeSession(), max_tokens=9)).run().tokens


def test_a_seed_that_is_drawn_is_that_of_all() -> None:
    results = several(FakeSession(), 3, max_tokens=9, seed=None).run()
    assert len({result.seed for result in results}) == 1 and len({result.tokens for result in results}) == 3


@pytest.mark.parametrize("way", ["close", "drop", "error"])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_what_is_left_half_way_frees_all_lines(way: str, after: int) -> None:
    def failing(line: Sequence[int]) -> Any:
        if way == "error" and len(line) > len(PROMPT) + 2:
            raise KeyboardInterrupt
        return noise(line)

    session = FakeSession(failing)
    stream = several(session, 3, ignore_eos=True)
    for _ in range(after):
        next(stream)
    if way == "close":
        stream.close()
        assert [result.finish_reason for result in stream.results] == ["interrupted"] * 3
    elif way == "drop":
        del stream
    else:
        with pytest.raises(KeyboardInterrupt):
            stream.run()
    assert not session.lines


def test_a_prompt_that_leaves_no_room_is_refused_at_once() -> None:
    session = FakeSession()
    with pytest.raises(ContextFullError, match="1 too many"):
        several(session, 2, context=3)
    assert not session.chunks and not session.lines


def test_timings_are_those_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def tick() -> float:
        return clock

    def rule(line: Sequence[int]) -> Any:
        nonlocal clock
        clock += 2.0 if len(line) == len(PROMPT) else 0.25
        return saying("ab")(line)

    monkeypatch.setattr("time.perf_counter", tick)
    stream = several(FakeSession(rule), 2, temperature=0)
    for _ in stream:
        clock += 100
    for result in stream.results:
        # Two more steps of two lines each.
        assert (result.timings.prompt_seconds, result.timings.completion_seconds) == (2.0, 1.0)
        assert result.timings.completion_tokens == 3
