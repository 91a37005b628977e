from __future__ import annotations

from itertools import islice

import numpy as np

from localllm.generation import sampling
from localllm.generation.options import make
from localllm.generation.speculation import draft
from localllm.generation.speculation.costs import Costs
from localllm.generation.speculation.draft import DraftModel
from localllm.generation.speculation.vocabularies import Bridge
from tests.generation.fakes import VOCAB, FakeSession, noise, stepper


def begin(temperature: float = 0.0, seed: int = 1) -> sampling.State:
    return sampling.begin(make({"temperature": temperature}), seed)


def model(session: FakeSession, moved: dict[int, int | None] | None = None, context: int = 4096) -> DraftModel:
    return DraftModel(stepper(session, context), Bridge(VOCAB, VOCAB, moved or {}), Costs(), draft.acceptance(), lambda: 0.02)


def test_guesses_are_what_the_draft_would_say() -> None:
    session = FakeSession()
    guesser = model(session)
    guesser.extend([1, 2, 3])
    state = begin(1.0).after([1, 2, 3])
    made = [guess.token for guess in islice(guesser.guesses(state), 5)]
    text = [1, 2, 3]
    for token in made:
        expected, state = sampling.step(state, noise(text))
        assert token == expected
        text.append(token)


def test_the_line_keeps_what_came_true_and_is_fed_the_rest() -> None:
    session = FakeSession()
    guesser = model(session)
    guesser.extend([1, 2, 3])
    made = [guess.token for guess in islice(guesser.guesses(begin()), 4)]
    guesser.extend([*made[:2], 7])
    assert session.lines[0].tokens == [1, 2, 3, *made[:2]]
    next(guesser.guesses(begin()))
    assert session.lines[0].tokens == [1, 2, 3, *made[:2], 7]
    assert session.chunks == [3, 1, 1, 1, 1]


def test_guesses_that_all_came_true_are_not_fed_again() -> None:
    session = FakeSession()
    guesser = model(session)
    guesser.extend([1, 2, 3])
    made = [guess.token for guess in islice(guesser.guesses(begin()), 3)]
    guesser.extend([*made, 7])
    next(guesser.guesses(begin()))
    assert session.chunks == [3, 1, 1, 2]


def test_the_last_token_is_fed_again_where_its_logits_are_wanted() -> None:
    session = FakeSession()
    guesser = model(session)
    guesser.extend([1, 2, 3])
    made = [guess.token for guess in islice(guesser.guesses(begin()), 4)]
    guesser.extend(made[:3])
    assert [guess.token for guess in islice(guesser.guesses(begin()), 1)] == made[3:4]


def test_a_full_context_ends_the_guesses() -> None:
    guesser = model(FakeSession(), context=5)
    guesser.extend([1, 2, 3])
    assert len(list(guesser.guesses(begin()))) == 3
    guesser.extend([4, 5, 6])
    assert list(guesser.guesses(begin())) == []


def test_other_ids_are_bridged_both_ways() -> None:
    session = FakeSession(lambda line: np.float32(9) * np.eye(VOCAB, dtype=np.float32)[20])
    guesser = model(session, {10: 20, 20: None})
    guesser.extend([10, 3])
    assert [guess.token for guess in islice(guesser.guesses(begin()), 2)] == [10, 10]
    assert session.lines[0].tokens == [20, 3, 20]


def test_what_is_lacking_costs() -> None:
    session = FakeSession()
    guesser = model(session)
    guesser.extend([1] * 40)
    assert guesser.lag(whole=True) > guesser.lag(whole=False) > 0.02
    next(guesser.guesses(begin()))
    assert guesser.caught_up >= 0
    guesser.extend([1])
    assert guesser.lag(whole=True) == 0
    assert guesser.seconds(3, known=1) <= guesser.seconds(3)


def test_sure_guesses_are_of_a_better_kind() -> None:
    kinds = []
    for peak in (0.0, 5.0, 20.0):
        logits = np.eye(VOCAB, dtype=np.float32)[4] * np.float32(peak)
        guesser = model(FakeSession(lambda line, logits=logits: logits))  # type: ignore[misc]
        guesser.extend([1])
        kinds.append(next(guesser.guesses(begin())).kind)
    assert kinds == sorted(set(kinds))


def test_a_draft_is_tried_with_the_end_of_the_text_and_gets_the_whole_later() -> None:
    session = FakeSession()
    guesser = model(session)
    text = list(range(100))
    guesser.extend(text)
    guesser.hold(whole=False)
    made = [guess.token for guess in islice(guesser.guesses(begin()), 3)]
    held = session.lines[0].tokens
    assert held == [*text[68:], *made[:2]]
    guesser.extend([*made[:2], 7])
    assert held == [*text[68:], *made[:2]]
    guesser.hold(whole=False)
    next(guesser.guesses(begin()))
    assert held == [*text[68:], *made[:2], 7]
    guesser.hold(whole=True)
    assert guesser.lag(whole=True) > 0
    next(guesser.guesses(begin()))
    assert held == [*text, *made[:2], 7]
