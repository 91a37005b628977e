from __future__ import annotations

from collections.abc import Iterator, Sequence

from localllm.generation import sampling
from localllm.generation.speculation.acceptance import Acceptance
from localllm.generation.speculation.costs import Costs
from localllm.generation.speculation.depth import Speed, best, draw, likely
from localllm.generation.speculation.sources import Guess

STATE = sampling.State((), seed=0)


def costs(*ratios: float) -> Costs:
    made = Costs()
    made.put(0.1, dict(zip((1, 2, 4, 8, 16), (1.0, *ratios), strict=True)), 0.1)
    return made


STAIRS = costs(1.1, 1.2, 1.5, 3.0)
STEEP = costs(2.0, 4.0, 8.0, 16.0)
PLAIN = 10.0
"""Tokens a second at a tenth of a second each."""


def test_sure_guesses_go_as_deep_as_pays() -> None:
    assert best([0.99] * 15, STAIRS, PLAIN)[0] == 15
    assert best([0.8] * 15, STAIRS, PLAIN)[0] == 7  # the next eight cost as much as a token and a half each


def test_columns_that_are_empty_anyway_are_filled() -> None:
    assert best([0.5, 0.1, 0.1], STAIRS, PLAIN)[0] == 1
    assert best([0.5, 0.5, 0.05], STAIRS, PLAIN)[0] == 3


def test_guesses_that_lose_are_left_out() -> None:
    assert best([0.05] * 7, STAIRS, PLAIN)[0] == 0
    assert best([0.95] * 15, STEEP, PLAIN)[0] == 0
    assert best([], STAIRS, PLAIN)[0] == 0


def test_time_is_worth_more_where_tokens_come_fast() -> None:
    assert best([0.15], STAIRS, PLAIN)[0] == 1
    assert best([0.15], STAIRS, 3 * PLAIN)[0] == 0


def test_speed_is_that_of_the_last_steps_and_never_less_than_plain() -> None:
    speed = Speed()
    assert speed.rate(STAIRS) == PLAIN
    for _ in range(100):
        speed.saw(4, 0.1)
    assert 35 < speed.rate(STAIRS) <= 40.1
    for _ in range(100):
        speed.saw(1, 0.4)
    assert speed.rate(STAIRS) == PLAIN


class Fixed:
    """Guesses of given kinds: kind 1 is often right and kind 0 hardly ever. ``asked``: how many were made."""

    def __init__(self, kinds: Sequence[int], cost: float, mean: float = 0.9) -> None:
        self.acceptance = Acceptance((0.5,), (0.05, 0.95), mean)
        self._kinds, self._cost = kinds, cost
        self.asked = 0

    def extend(self, tokens: Sequence[int]) -> None: ...

    def guesses(self, state: sampling.State) -> Iterator[Guess]:
        for kind in self._kinds:
            self.asked += 1
            yield Guess(7, kind)

    def seconds(self, n: int, known: int = 0) -> float:
        return n * self._cost


def drawn(source: Fixed, least: float = 0.0, lag: float = 0.0, room: int = 15) -> int:
    return len(draw(source, STATE, STAIRS, PLAIN, room, least, lag))


def test_a_source_is_asked_until_it_is_in_doubt() -> None:
    assert drawn(Fixed([1] * 20, 0.02)) >= 5
    assert drawn(Fixed([1, 1, 0, 1, 1], 0.02)) == 3
    assert drawn(Fixed([1] * 20, 0.02), room=2) == 2
    assert drawn(Fixed([1], 0.02)) == 1


def test_a_source_is_not_asked_where_it_can_only_lose() -> None:
    for source, least, lag in (
        (Fixed([1], 0.2), 0.0, 0.0),
        (Fixed([1], 0.02, mean=0.1), 0.0, 0.0),
        (Fixed([1], 0.02), 0.0, 1.0),
        (Fixed([1], 0.02), 9.0, 0.0),
    ):
        assert drawn(source, least, lag) == 0
        assert source.asked == 0


def test_free_guesses_end_where_nobody_would_follow() -> None:
    assert len(likely(Fixed([1] * 30, 0.0), STATE, 15)) == 15
    assert len(likely(Fixed([1, 0, 0, 1, 1], 0.0), STATE, 15)) == 3
    assert len(likely(Fixed([0] * 5, 0.0), STATE, 15)) == 2
    assert likely(Fixed([], 0.0), STATE, 15) == []
