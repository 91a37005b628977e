from __future__ import annotations

import random

import pytest

from localllm.generation.speculation.automaton import Match, SuffixAutomaton


def places(text: list[int]) -> tuple[int, list[int]] | None:
    """The length of the longest end that stands before the end too, and where it ends there: all substrings tried."""
    for length in range(len(text) - 1, 0, -1):
        ends = [end for end in range(length, len(text)) if text[end - length : end] == text[-length:]]
        if ends:
            return length, ends
    return None


@pytest.mark.parametrize("letters", [1, 2, 3, 8])
def test_the_longest_end_that_stood_before_is_found(letters: int) -> None:
    rng = random.Random(letters)
    for _ in range(30):
        automaton, text = SuffixAutomaton(), list[int]()
        for _ in range(50):
            token = rng.randrange(letters)
            automaton.append(token)
            text.append(token)
            expected, match = places(text), automaton.match()
            assert (match is None) == (expected is None)
            if match is not None and expected is not None:
                assert match.length == expected[0] and match.next in expected[1]
    assert automaton.tokens == text


def test_the_latest_place_is_taken() -> None:
    automaton = SuffixAutomaton()
    for token in [1, 2, 3, 1, 2, 4, 1, 2]:
        automaton.append(token)
    assert automaton.match() == Match(2, 5)


def test_nothing_stood_before() -> None:
    automaton = SuffixAutomaton()
    assert automaton.match() is None
    for token in range(5):
        automaton.append(token)
        assert automaton.match() is None
