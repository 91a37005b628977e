"""Whatever is guessed, the text is that of plain decoding, and the line holds what was said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from localllm.generation import sampling
from localllm.generation.options import make
from localllm.generation.speculation.chooser import Chooser
from localllm.generation.speculation.memory import Memory
from localllm.generation.speculation.step import Speculator, Tally
from localllm.generation.stepper import Stepper, plain
from tests.generation.fakes import VOCAB, FakeLine, FakeSession, noise, stepper

PROMPT = [1, 2, 3]
SAMPLERS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 2.0, "seed": 6, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0, "repeat_penalty": 1.5, "frequency_penalty": 0.5},
    {"temperature": 1.0, "seed": 7, "repeat_penalty": 1.3, "repeat_last_n": 4, "ignore_eos": True},
]


def begin(options: dict[str, Any], prompt: Sequence[int]) -> sampling.State:
    made = make(options)
    return sampling.begin(made, made.seed or 0, ends=(9,)).after(prompt)


def without(options: dict[str, Any], count: int) -> list[int]:
    said: list[int] = []
    with stepper(FakeSession()) as line:
        step, state = plain(line, PROMPT), begin(options, PROMPT)
        while len(said) < count:
            found, state = step(state)
            said += found
    return said


class Told(Chooser):
    """Guesses what it is told to: ``rule(tokens of the answer so far, room)``. ``rooms``: what there was room for."""

    def __init__(self, rule: Callable[[Sequence[int], int], Sequence[int]]) -> None:
        super().__init__(Memory(), None, None)
        self._rule = rule
        self.text: list[int] = []
        self.rooms: list[int] = []

    def choose(self, state: sampling.State, room: int) -> list[int]:
        self.rooms.append(room)
        return list(self._rule(self.text[len(PROMPT) :], room))

    def extend(self, tokens: Sequence[int]) -> None:
        self.text += tokens


def speculator(line: Stepper, chooser: Chooser, tally: Tally | None = None, **more: Any) -> Speculator:
    return Speculator(line, PROMPT, None, chooser=chooser, costs=Memory().costs, tally=tally or Tally(), **more)


@pytest.mark.parametrize("options", SAMPLERS)
@pytest.mark.parametrize("wrong", [None, 0, 1, 4])
def test_right_and_wrong_guesses_give_the_same_text(options: dict[str, Any], wrong: int | None) -> None:
    truth = without(options, 60)

    def rule(said: Sequence[int], room: int) -> list[int]:
        guess = truth[len(said) : len(said) + len(said) % 8]
        if wrong is not None and wrong < len(guess):
            guess[wrong] = (guess[wrong] + 1) % VOCAB
        return guess[:room]

    said: list[int] = []
    session, tally = FakeSession(), Tally()
    with stepper(session) as line:
        step, state = speculator(line, Told(rule), tally), begin(options, PROMPT)
        while len(said) < 40:
            found, state = step(state)
            said += found
            (held,) = session.lines
            assert held.tokens == PROMPT + said[:-1]
            assert state.count == len(PROMPT) + len(said)
    assert said == truth[: len(said)]
    made = tally.result()
    assert made.drafted >= made.accepted > 0 or wrong == 0
    assert len(said) == len(session.chunks) + made.accepted


class Stiff(FakeLine):
    """A line that can only go back to lengths that are multiples of four."""

    def truncate(self, n: int) -> int:
        return super().truncate(n - n % 4 if n < len(self.tokens) else n)


def test_a_line_that_goes_back_too_far_is_fed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeSession, "new_line", lambda session: Stiff(session))
    truth = without({"temperature": 0}, 30)
    said: list[int] = []
    with stepper(FakeSession()) as line:
        step = speculator(line, Told(lambda said, room: [truth[len(said)], 0, 0, 0][:room]))
        state = begin({"temperature": 0}, PROMPT)
        while len(said) < 20:
            found, state = step(state)
            said += found
    assert said == truth[: len(said)]


def test_no_more_is_guessed_than_can_be_said() -> None:
    chooser = Told(lambda said, room: [0] * room)
    with stepper(FakeSession(), context=len(PROMPT) + 6) as line:
        step, state = speculator(line, chooser), begin({"temperature": 0}, PROMPT)
        for _ in range(6):
            _, state = step(state)
    assert chooser.rooms == [5, 4, 3, 2, 1]
    chooser = Told(lambda said, room: [0] * room)
    with stepper(FakeSession()) as line:
        step, state = speculator(line, chooser, most=4), begin({"temperature": 0}, PROMPT)
        for _ in range(4):
            _, state = step(state)
    assert chooser.rooms == [2, 1, 0]


def test_nothing_is_guessed_behind_an_end() -> None:
    session = FakeSession()
    with stepper(session) as line:
        step, state = speculator(line, Told(lambda said, room: [5, 9, 5, 5]), ends={9}), begin({"temperature": 0}, PROMPT)
        for _ in range(2):
            _, state = step(state)
    assert session.chunks == [len(PROMPT), 3]


def test_a_batch_that_is_small_leaves_less_room() -> None:
    chooser = Told(lambda said, room: [0] * room)
    with stepper(FakeSession(batch=3)) as line:
        step, state = speculator(line, chooser), begin({"temperature": 0}, PROMPT)
        for _ in range(2):
            _, state = step(state)
    assert chooser.rooms == [2]


def test_the_rule_of_the_fakes_is_no_loop() -> None:
    assert len(set(without({"temperature": 0}, 30))) > 20
    assert noise([1]).shape == (VOCAB,)
