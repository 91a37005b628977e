"""A context that is full: what is refused, what ends, what is dropped, and that it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from localllm.errors import ContextFullError, OptionError
from localllm.generation.answer import Job
from localllm.generation.full import DropTurns, Shift, Shorten, policy
from localllm.generation.options import make
from localllm.generation.results import Result
from localllm.generation.stream import Stream
from tests.generation.fakes import BOT, END, FakeDecoder, FakeSession, noise, saying, stepper

PROMPT = [1, 2, 3, BOT]


def say(session: FakeSession, prompt: Sequence[int], context: int, shorten: Shorten | None = None, **options: Any) -> Result:
    options = {"temperature": 0, "max_tokens": 40, **options}
    return Stream(
        Job(
            line=lambda _: stepper(session, context),
            prompt=prompt,
            options=make(options),
            decoder=FakeDecoder(),
            ends=frozenset({END}),
            context=context,
            shorten=shorten,
        )
    ).run()


def shift(prompt: Sequence[int], context: int, keep: int = 0) -> Shift:
    return Shift(prompt, context, keep)


@pytest.mark.parametrize(
    ("length", "keep", "left", "dropped"),
    [
        (9, 0, [0, 1, 2, 3, 4, 5, 6, 7, 8], 0),
        (10, 0, [5, 6, 7, 8, 9], 5),  # half of the context goes
        (14, 0, [5, 6, 7, 8, 9, 10, 11, 12, 13], 5),
        (15, 0, [10, 11, 12, 13, 14], 10),
        (10, 4, [0, 1, 2, 3, 7, 8, 9], 3),
        (40, 4, [0, 1, 2, 3, 37, 38, 39], 33),
        (10, 8, [0, 1, 2, 3, 4, 5, 6, 7, 9], 1),
    ],
)
def test_a_shift_drops_blocks_behind_what_is_kept(length: int, keep: int, left: list[int], dropped: int) -> None:
    cut = shift(range(length), 10, keep)([])
    assert (cut.tokens, cut.dropped_tokens) == (left, dropped)
    assert shift(range(8), 10, keep)(range(8, length)) == cut  # however much of it is the answer


@pytest.mark.parametrize("keep", [-1, 9, 50])
def test_what_is_kept_must_leave_room(keep: int) -> None:
    with pytest.raises(ContextFullError, match="nothing to drop in the context of 10; keep less"):
        shift(range(12), 10, keep)([])


@pytest.mark.parametrize("context", [9, 12, 17])
def test_a_shifted_answer_is_that_of_the_shortened_text(context: int) -> None:
    session = FakeSession(noise)
    result = say(session, PROMPT, context, shift(PROMPT, context, 2), max_tokens=40, ignore_eos=True)
    assert result.finish_reason == "length" and len(result.tokens) == 40
    line, dropped = list(PROMPT), 0
    for token in result.tokens:
        logits = noise(line)
        logits[END] = -1000
        assert token == int(logits.argmax())
        line.append(token)
        if len(line) == context:
            block = (context - 2) // 2
            line[2 : 2 + block] = []
            dropped += block
    assert result.dropped_tokens == dropped > 0 and result.truncated
    assert not session.lines


def test_penalties_and_noise_go_on_over_a_shift() -> None:
    """A line that shifts does not begin to repeat itself: noise counts the tokens that ever were in it."""
    session = FakeSession(lambda line: noise([]))
    result = say(session, PROMPT, 8, shift(PROMPT, 8), temperature=1, seed=1, max_tokens=60, ignore_eos=True)
    assert len(set(result.tokens)) > 20
    assert len({result.tokens[n : n + 6] for n in range(54)}) == 54


def test_without_a_policy_the_answer_ends_and_the_prompt_is_refused() -> None:
    result = say(FakeSession(saying("hello")), PROMPT, 8)
    assert (result.text, result.finish_reason, result.truncated) == ("hell", "context", False)
    session = FakeSession()
    with pytest.raises(ContextFullError, match=r"4 tokens .* context of 3: 2 too many"):
        say(session, PROMPT, 3)
    assert not session.chunks


def test_stop_ends_instead_of_an_error() -> None:
    session = FakeSession(saying("hello"))
    result = say(session, PROMPT, 3, on_full="stop")
    assert (result.text, result.tokens, result.finish_reason) == ("", (), "context")
    assert not session.chunks
    assert say(session, PROMPT, 8, on_full="stop").text == "hell"


def conversation(*lengths: int, system: int = 0) -> list[dict[str, str]]:
    """Turns of two messages of so many letters; the last one has no answer yet."""
    turns = [[{"role": "user", "content": "u" * n}, {"role": "assistant", "content": "a" * n}] for n in lengths]
    start = [{"role": "system", "content": "s" * system}] if system else []
    return [*start, *(message for turn in turns for message in turn)][:-1]


def encode(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """A token a letter, and BOT."""
    return [*"".join(message["content"] for message in messages).encode(), BOT]


def test_turns_are_dropped_until_it_fits_and_a_little_further() -> None:
    messages = conversation(10, 10, 10, 10, 10, system=5)
    drop = DropTurns(messages, encode, 96)  # all of it is 5 + 90 + 1: one too many
    cut = drop([])
    assert cut.tokens == encode([messages[0], *messages[5:]])
    assert (cut.dropped_tokens, cut.dropped_turns) == (40, 2)  # a quarter of the context, 24, and so two turns
    assert drop(range(15)).dropped_turns == 2
    assert drop(range(24)).dropped_turns == 3
    assert drop(range(24)).tokens == [*encode([messages[0], *messages[7:]]), *range(24)]


def test_a_conversation_that_grows_keeps_its_beginning_for_a_while() -> None:
    beginnings = []
    for n in range(10, 40):
        messages = conversation(*[5] * n)
        beginnings.append(DropTurns(messages, encode, 100)([]).dropped_turns)
    assert beginnings == sorted(beginnings)
    assert len(set(beginnings)) <= len(beginnings) // 2


def test_the_last_turn_is_never_dropped() -> None:
    messages = conversation(10, 10, 60)
    assert DropTurns(messages, encode, 70)([]).tokens == encode(messages[4:])
    with pytest.raises(
        ContextFullError, match=r"without the 2 turns before it the last one has 61 tokens: 2 too many for the context of 60"
    ):
        DropTurns(messages, encode, 60)([])
    with pytest.raises(ContextFullError, match="without the 0 turns"):
        DropTurns([{"role": "system", "content": "s" * 60}], encode, 60)([])


def test_an_answer_that_fills_the_context_drops_turns_and_goes_on() -> None:
    messages = conversation(4, 4, 4)
    prompt, context = encode(messages), 26
    session = FakeSession(noise)
    result = say(session, prompt, context, DropTurns(messages, encode, context), ignore_eos=True)
    assert (result.finish_reason, result.dropped_turns, result.dropped_tokens) == ("context", 2, 16)
    expected, line = [], list(prompt)
    for _ in range(len(result.tokens)):
        logits = noise(line)
        logits[END] = -1000
        expected.append(int(logits.argmax()))
        line.append(expected[-1])
        if len(line) == context and len(expected) < len(result.tokens):
            kept = encode(messages[4:] if len(expected) > 10 else messages[2:])
            line = [*kept, *expected]
    assert list(result.tokens) == expected


def test_what_the_options_mean() -> None:
    ids, messages = [256, 1, 2, 3], conversation(3, 3)

    def chosen(name: str, keep: int, prompt: Any) -> Any:
        return policy(name, keep, prompt, ids, 10, encode, lambda: [256])

    assert chosen("error", 0, ids) is chosen("stop", 0, messages) is chosen("drop-oldest-turns", 0, "text") is None
    assert chosen("drop-oldest-turns", 0, ids) is chosen("drop-oldest-turns", 0, []) is None
    assert isinstance(chosen("drop-oldest-turns", 0, messages), DropTurns)
    assert chosen("shift", 0, ids)(range(6)).tokens[0] == 256  # what begins every text always stays
    assert chosen("shift", 1, ids)(range(6)).tokens[:2] == [256, 1]
    assert chosen("shift", -1, ids)(range(6)).tokens[:4] == ids


@pytest.mark.parametrize("options", [{"on_full": "drop"}, {"keep": -2}, {"keep": 0.5}, {"on_full": None}])
def test_values_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"'{next(iter(options))}'"):
        make(options)
