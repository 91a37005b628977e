from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localllm.backends.base import Progress
from localllm.errors import ContextFullError, OptionError
from localllm.generation import sampling
from localllm.generation.options import make
from localllm.generation.results import Event
from localllm.generation.stepper import Step, Stepper, plain
from localllm.generation.stream import Job, Provider, Stream
from tests.generation.fakes import BOT, END, FakeDecoder, FakeSession, Rule, saying, stepper

PROMPT = [1, 2, BOT]
GREEDY = {"temperature": 0}


def start(
    session: FakeSession, *, context: int = 4096, provider: Provider = plain, prompt: Sequence[int] = PROMPT, **options: Any
) -> Stream:
    return Stream(
        Job(
            line=lambda: stepper(session, context),
            prompt=prompt,
            options=make({**GREEDY, **options}),
            decoder=FakeDecoder(),
            ends=frozenset({END}),
            context=context,
            provider=provider,
        )
    )


def listen(rule: Rule, **options: Any) -> list[Event]:
    session = FakeSession(rule)
    events = list(start(session, **options))
    assert not session.lines
    return events


def test_events_carry_text_and_tokens_and_the_last_one_the_result() -> None:
    events = listen(saying("hello"))
    assert [event.text for event in events] == ["h", "e", "l", "l", "o", "", ""]
    assert [event.token for event in events] == [*b"hello", END, None]
    assert [event.result is None for event in events] == [True] * 6 + [False]
    result = events[-1].result
    assert result is not None
    assert (str(result), result.text, result.tokens) == ("hello", "hello", (*b"hello", END))
    assert (result.finish_reason, result.stop) == ("stop", None)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens, result.usage.total_tokens) == (3, 6, 9)


@pytest.mark.parametrize("options", [{}, {"max_tokens": 4}, {"stop": "lo wo"}, {"stop": "zzz"}, {"context": 9}])
@pytest.mark.parametrize("said", ["hello world", "größer 日本 🙂", b"\xf0\x9f half"])
def test_texts_of_events_join_to_the_text_of_the_result(options: dict[str, Any], said: str | bytes) -> None:
    events = listen(saying(said), **options)
    result = events[-1].result
    assert result is not None
    assert "".join(event.text for event in events) == result.text
    assert tuple(event.token for event in events[:-1]) == result.tokens


def test_half_a_character_waits_for_the_other_half() -> None:
    assert [event.text for event in listen(saying("ä🙂"))] == ["", "ä", "", "", "", "🙂", "", ""]
    cut = listen(saying("🙂"), max_tokens=2)
    assert [event.text for event in cut] == ["", "", "\ufffd"]


def test_max_tokens_ends_with_length() -> None:
    result = listen(saying("hello"), max_tokens=3)[-1].result
    assert result is not None
    assert (result.text, result.finish_reason) == ("hel", "length")


def test_the_context_ends_the_answer_and_says_so() -> None:
    session = FakeSession(saying("hello"))
    result = start(session, context=7).run()
    assert (result.text, result.finish_reason) == ("hell", "context")
    assert result.usage.total_tokens == 7
    assert sum(session.chunks) == 6  # the last token is not fed


@pytest.mark.parametrize(("context", "over"), [(3, 1), (2, 2)])
def test_a_prompt_that_leaves_no_room_is_refused_at_once(context: int, over: int) -> None:
    session = FakeSession()
    with pytest.raises(ContextFullError, match=f"3 tokens.*context of {context}: {over} too many"):
        start(session, context=context)
    assert not session.chunks and not session.lines


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(OptionError, match="empty"):
        start(FakeSession(), prompt=[])


def test_a_stop_string_across_tokens_never_leaks() -> None:
    events = listen(saying("one STOP two"), stop=["STOP", "never"])
    result = events[-1].result
    assert result is not None
    assert (result.text, result.finish_reason, result.stop) == ("one ", "stop", "STOP")
    assert result.tokens == tuple(b"one STOP")
    assert all("S" not in event.text for event in events)


def test_a_stop_string_on_the_last_token_counts_as_stop() -> None:
    result = listen(saying("abcdef"), stop="c", max_tokens=3)[-1].result
    assert result is not None
    assert (result.text, result.finish_reason) == ("ab", "stop")


def test_the_beginning_of_a_stop_string_is_shown_when_nothing_comes_of_it() -> None:
    assert [event.text for event in listen(saying("an EN"), stop="END")][-1] == "EN"


def test_ignore_eos_never_samples_the_end() -> None:
    events = listen(saying("ab"), ignore_eos=True, max_tokens=12)
    assert len(events) == 13
    assert END not in [event.token for event in events]


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_stop_token_ends_and_is_not_shown(ignore_eos: bool) -> None:
    events = listen(saying("hello"), stop_token_ids=[ord("l")], ignore_eos=ignore_eos)
    assert [event.text for event in events] == ["h", "e", "", ""]
    result = events[-1].result
    assert result is not None
    assert (result.text, result.finish_reason, result.stop, result.tokens) == ("he", "stop", ord("l"), tuple(b"hel"))


@pytest.mark.parametrize("provider", [plain, "pairs"])
def test_logprobs_go_with_each_token(provider: Any) -> None:
    chosen = pairs if provider == "pairs" else provider
    session = FakeSession(saying("hello"))
    events = list(start(session, provider=chosen, logprobs=2, temperature=1.0, seed=4))
    result = events[-1].result
    assert result is not None and result.logprobs is not None
    assert result.logprobs == tuple(event.logprob for event in events[:-1]) and events[-1].logprob is None
    assert tuple(one.token for one in result.logprobs) == result.tokens
    for n, one in enumerate(result.logprobs):
        logits = saying("hello")([*PROMPT, *result.tokens[:n]]).astype(np.float64)
        assert one.logprob == pytest.approx(logits[one.token] - np.log(np.exp(logits - logits.max()).sum()) - logits.max(), abs=1e-6)
        assert [token for token, _ in one.top] == list(np.argsort(-logits, kind="stable")[:2])
    assert start(FakeSession(saying("hello"))).run().logprobs is None


def test_the_completion_is_told_and_changes_the_answer() -> None:
    first, second = (start(FakeSession(), temperature=1, max_tokens=20, seed=1, completion=n).run() for n in (0, 1))
    assert (first.completion, second.completion) == (0, 1)
    assert first.tokens != second.tokens


def test_the_seed_that_was_drawn_makes_the_answer_again() -> None:
    first = start(FakeSession(), temperature=1, max_tokens=20).run()
    again = start(FakeSession(), temperature=1, max_tokens=20, seed=first.seed).run()
    other = start(FakeSession(), temperature=1, max_tokens=20, seed=first.seed + 1).run()
    assert again.tokens == first.tokens
    assert other.tokens != first.tokens


@pytest.mark.parametrize("way", ["close", "drop", "with"])
def test_a_stream_left_half_way_frees_its_line(way: str) -> None:
    session = FakeSession(saying("hello"))
    stream = start(session)
    assert next(stream).text == "h"
    assert len(session.lines) == 1
    if way == "close":
        stream.close()
        assert (stream.result.text, stream.result.finish_reason) == ("h", "interrupted")
        assert list(stream) == []
    elif way == "drop":
        del stream
    else:
        with stream:
            pass
    assert not session.lines
    assert start(session).run().text == "hello"


def test_a_stream_that_was_never_listened_to_takes_no_line() -> None:
    session = FakeSession()
    start(session)
    assert not session.lines


def test_an_interruption_frees_the_line_and_leaves_what_was_said() -> None:
    calls = 0

    def rule(line: Sequence[int]) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return saying("hello")(line)

    session = FakeSession(rule)
    stream = start(session)
    with pytest.raises(KeyboardInterrupt):
        stream.run()
    assert not session.lines
    assert (stream.result.text, stream.result.finish_reason) == ("hel", "interrupted")


def test_two_streams_may_run_side_by_side() -> None:
    session = FakeSession(saying("hello"))
    pairs = list(zip(start(session), start(session), strict=True))
    assert [a.text for a, _ in pairs] == [b.text for _, b in pairs]
    assert not session.lines


def test_timings_leave_out_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def tick() -> float:
        return clock

    def rule(line: Sequence[int]) -> Any:
        nonlocal clock
        clock += 2.0 if len(line) == len(PROMPT) else 0.5
        return saying("abc")(line)

    monkeypatch.setattr("time.perf_counter", tick)
    stream = start(FakeSession(rule))
    for _ in stream:
        clock += 100
    timings = stream.result.timings
    assert (timings.prompt_seconds, timings.completion_seconds) == (2.0, 1.5)
    assert (timings.prompt_per_second, timings.completion_per_second) == (1.5, 2.0)


def pairs(line: Stepper, prompt: Sequence[int], progress: Progress | None) -> Step:
    """Two tokens a step, as a provider that guesses ahead gives them."""
    one = plain(line, prompt, progress)

    def step(state: sampling.State) -> tuple[Sequence[int], sampling.State]:
        first, state = one(state)
        second, state = one(state)
        return (*first, *second), state

    return step


@pytest.mark.parametrize(
    "options", [{}, {"max_tokens": 3}, {"stop": "l"}, {"context": 6}, {"temperature": 1.0, "seed": 4, "max_tokens": 9}]
)
def test_several_tokens_a_step_give_the_same_answer(options: dict[str, Any]) -> None:
    one, two = (start(FakeSession(saying("hello")), provider=provider, **options).run() for provider in (plain, pairs))
    assert (one.text, one.tokens, one.finish_reason, one.stop) == (two.text, two.tokens, two.finish_reason, two.stop)
