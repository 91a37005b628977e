from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.generation.stops import StopScanner


def scan(stops: list[str], pieces: list[str]) -> tuple[list[str], str, str | None]:
    scanner = StopScanner(stops)
    shown = [scanner.push(piece) for piece in pieces]
    return shown, scanner.flush(), scanner.found


def test_a_stop_string_across_pieces_is_found_and_not_shown() -> None:
    assert scan(["END"], ["one E", "N", "D two"]) == (["one ", "", ""], "", "END")


def test_a_false_beginning_is_shown_once_it_is_false() -> None:
    assert scan(["END"], ["E", "N", "EN", "x"]) == (["", "", "EN", "ENx"], "", None)


def test_what_was_held_back_comes_at_the_end() -> None:
    assert scan(["END"], ["an EN"]) == (["an "], "EN", None)


@pytest.mark.parametrize(
    ("stops", "text", "shown", "found"),
    [
        (["b", "abc"], "xabc", "x", "abc"),
        (["bc", "abcd"], "xabc", "xa", "bc"),
        (["aab"], "aaab", "a", "aab"),
        (["\n\n"], "a\n\nb\n\n", "a", "\n\n"),
        ([], "text", "text", None),
    ],
)
def test_the_first_stop_string_cuts(stops: list[str], text: str, shown: str, found: str | None) -> None:
    pieces, rest, hit = scan(stops, [text])
    assert ("".join(pieces) + rest, hit) == (shown, found)


def test_nothing_comes_after_a_stop() -> None:
    assert scan(["."], ["a.", "b", "c"]) == (["a", "", ""], "", ".")


@given(st.lists(st.text("ab", max_size=3), max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_pieces_give_what_the_text_up_to_the_first_completed_stop_is(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    # The stop that is complete first wins; of those complete at one place, the longest.
    done = min((text.index(stop) + len(stop) for stop in stops if stop in text), default=None)
    shown, rest, found = scan(stops, [*text])
    if done is None:
        assert ("".join(shown) + rest, found) == (text, None)
    else:
        cut = min(done - len(stop) for stop in stops if text[:done].endswith(stop))
        assert "".join(shown) + rest == text[:cut]
        assert found == text[cut:done]
    in_pieces = "".join(scan(stops, pieces)[0])
    assert done is None or not any(stop in in_pieces for stop in stops)
