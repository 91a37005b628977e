from __future__ import annotations

from itertools import islice

import pytest

from localllm.generation import sampling
from localllm.generation.speculation import ngram
from localllm.generation.speculation.automaton import SuffixAutomaton
from localllm.generation.speculation.ngram import Ngram

STATE = sampling.State((), seed=0)


def guesses(text: list[int], count: int) -> list[int]:
    made = Ngram(ngram.acceptance(), SuffixAutomaton())
    made.extend(text)
    return [guess.token for guess in islice(made.guesses(STATE), count)]


def test_what_followed_before_follows_again() -> None:
    assert guesses([1, 2, 3, 4, 5, 9, 1, 2], 3) == [3, 4, 5]
    assert guesses([1, 2, 3], 3) == []
    assert guesses([], 3) == []


def test_a_text_that_repeats_itself_goes_on_so() -> None:
    assert guesses([7, 8, 9, 7, 8, 9, 7], 7) == [8, 9, 7, 8, 9, 7, 8]
    assert guesses([5, 5], 4) == [5, 5, 5, 5]


def test_longer_matches_are_better_kinds_and_each_guess_makes_one_longer() -> None:
    made = Ngram(ngram.acceptance(), SuffixAutomaton())
    made.extend([*range(100), 200, *range(40)])
    kinds = [guess.kind for guess in islice(made.guesses(STATE), 30)]
    assert kinds == sorted(kinds) and kinds[0] < kinds[-1]
    shares = [made.acceptance.share(kind) for kind in range(12)]
    assert shares == sorted(shares)


def test_a_beginning_that_is_known_is_not_learnt_twice() -> None:
    first = Ngram(ngram.acceptance(), SuffixAutomaton())
    first.extend([1, 2, 3])
    second = Ngram(first.acceptance, first.automaton)
    second.extend([1, 2, 3, 4])
    second.extend([5])
    assert second.automaton.tokens == [1, 2, 3, 4, 5]


def test_an_interrupt_leaves_nothing_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Ngram(ngram.acceptance(), SuffixAutomaton())
    made.extend([1, 2, 1])
    assert made.whole

    def interrupt(automaton: SuffixAutomaton, token: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SuffixAutomaton, "append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        made.extend([2])
    assert not made.whole
