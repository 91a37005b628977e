from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localllm.backends.base import likeliest
from localllm.errors import BackendError
from localllm.generation import sampling
from localllm.generation.candidates import Candidates, Float
from localllm.generation.chain import chain_of
from localllm.generation.few import FEW, Few
from localllm.generation.filters.penalties import Penalties
from localllm.generation.options import make

BIG = 151_936
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
STATE = sampling.State((), seed=0)


def logits_of(size: int, seed: int = 0, spread: float = 3) -> Float:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def ids_left(one: sampling.Filter, logits: Float) -> list[int]:
    return [int(i) for i in one(Candidates(logits), STATE).names()]


def ranked(logits: Float) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


@pytest.mark.parametrize("size", [1, 5, 63, 64, 1000, 16_384, 16_385, BIG])
@pytest.mark.parametrize("k", [1, 7, 40])
def test_top_k_keeps_the_k_likeliest_in_order(size: int, k: int) -> None:
    logits = logits_of(size)
    assert ids_left(sampling.TopK(k), logits) == ranked(logits)[:k]


@pytest.mark.parametrize("size", [50, 30_000])
def test_top_k_takes_the_lowest_ids_on_ties(size: int) -> None:
    logits = np.round(logits_of(size, spread=1)).astype(np.float32)
    assert ids_left(sampling.TopK(40), logits) == ranked(logits)[:40]
    assert ids_left(sampling.TopK(3), np.zeros(size, np.float32)) == [0, 1, 2]


@pytest.mark.parametrize("p", [0.0, 0.3, 0.95, 0.999])
@pytest.mark.parametrize("spread", [0.01, 3.0])
@pytest.mark.parametrize("size", [4, 300, 20_000])
def test_top_p_keeps_the_fewest_that_reach_p(p: float, spread: float, size: int) -> None:
    logits = logits_of(size, spread=spread)
    order = ranked(logits)
    chances = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
    count = 1 + int(np.argmax(np.cumsum(chances[order]) >= p - 1e-12))
    assert ids_left(sampling.TopP(p), logits) == order[:count]
    after_top_k = sampling.TopP(p)(Candidates(logits).best(size), STATE)
    assert [int(i) for i in after_top_k.names()] == order[:count]


@pytest.mark.parametrize("p", [0.05, 0.5, 1.0])
def test_min_p_is_relative_to_the_likeliest(p: float) -> None:
    logits = logits_of(1000)
    chances = np.exp(logits.astype(np.float64))
    assert ids_left(sampling.MinP(p), logits) == list(np.flatnonzero(chances >= p * chances.max() * (1 - 1e-9)))


def test_temperature_divides() -> None:
    logits = logits_of(10)
    left = sampling.Temperature(0.5)(Candidates(logits), STATE)
    np.testing.assert_allclose(np.array(left.logits) - np.max(left.logits), (logits - logits.max()) * 2, rtol=1e-6)


@pytest.mark.parametrize("temperature", [1e-38, 1e-300])
@pytest.mark.parametrize("top_k", [0, 40])
def test_a_tiny_temperature_is_greedy_and_not_an_overflow(temperature: float, top_k: int) -> None:
    logits = logits_of(1000, spread=30)
    state = sampling.begin(make({**OFF, "temperature": temperature, "top_k": top_k}), seed=1)
    assert sampling.step(state, logits)[0] == logits.argmax()


@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_few_tokens_are_filtered_as_many_are(spread: float) -> None:
    # What is at most 64 tokens is Python's numbers; the same bits come of arrays, and the same token.
    chain = sampling.TopP(0.9), sampling.MinP(0.2), sampling.Temperature(0.7)
    for seed in range(100):
        logits = logits_of(1000, seed, spread)
        few = Candidates(logits).best(FEW)
        assert isinstance(few, Few)
        many: sampling.Tokens = Candidates(np.array(few.logits, np.float32), np.array(few.ids), ranked=True)
        for one in chain:
            few, many = one(few, STATE), one(many, STATE)
            assert isinstance(few, Few)
            assert isinstance(many, Candidates)
            assert list(few.logits) == many.logits.tolist()
            assert list(few.ids) == many.names().tolist()
        assert few.draw(seed) == many.draw(seed)


@pytest.mark.parametrize("given", [{}, {"temperature": 0}, {"top_k": 64, "top_p": 1.0}])
def test_a_vocabulary_of_a_few_tokens(given: dict[str, Any]) -> None:
    for size in (1, 2, 40, 64, 65):
        logits = logits_of(size)
        token, _ = sampling.step(sampling.begin(make(given), seed=2), logits)
        assert 0 <= token < size
    assert sampling.step(sampling.begin(make({**OFF, "top_p": 0.5}), seed=2), np.array([0, 9, 0], np.float32))[0] == 1


def test_penalties_are_llama_cpps() -> None:
    logits = np.array([2, -2, 1, 0, 3], np.float32)
    state = sampling.State((), 0, recent=(0, 1, 1, 3), last_n=64)
    left = Penalties(repeat=2, presence=0.5, frequency=0.25)(Candidates(logits), state)
    np.testing.assert_allclose(left.logits, [2 / 2 - 0.75, -2 * 2 - 1.0, 1, 0 - 0.75, 3])
    assert list(logits) == [2, -2, 1, 0, 3]


def test_penalties_see_the_last_n_tokens() -> None:
    for last_n, known in ((2, (4, 5)), (-1, (1, 2, 3, 4, 5)), (0, ())):
        state = sampling.begin(make({"repeat_penalty": 1.5, "repeat_last_n": last_n}), 0).after((1, 2, 3)).after((4,)).after((5,))
        assert (state.recent, state.count) == (known, 5)
    assert sampling.begin(make({}), 0).after((1, 2)).recent == ()  # no penalties: nothing to remember


def test_greedy_takes_the_lowest_id_on_ties() -> None:
    state = sampling.begin(make({"temperature": 0}), seed=1)
    assert sampling.step(state, np.array([0, 5, 5, 1], np.float32))[0] == 1


def test_the_default_chain_is_llama_cpps_order() -> None:
    kinds = [type(one) for one in chain_of(make({"repeat_penalty": 1.1}), banned=(3,))]
    assert kinds == [sampling.Ban, Penalties, sampling.TopK, sampling.TopP, sampling.MinP, sampling.Temperature]
    assert chain_of(make(OFF)) == ()


def test_a_banned_token_never_comes() -> None:
    logits = np.zeros(4, np.float32)
    logits[2] = 50
    for temperature in (0, 1):
        state = sampling.begin(make({"temperature": temperature, "ignore_eos": True}), 5, ends=(2,))
        for _ in range(20):
            token, state = sampling.step(state, logits)
            assert token != 2
    assert sampling.step(sampling.begin(make({}), 5, ends=(2,)), logits)[0] == 2


def test_tokens_come_as_often_as_their_probability_says() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
    state = sampling.begin(make(OFF), seed=11)
    drawn = []
    for _ in range(8000):
        token, state = sampling.step(state, logits)
        drawn.append(token)
    # Five standard errors of the commonest.
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 8000, [0.5, 0.25, 0.15, 0.1], atol=0.028)


def test_a_step_is_a_pure_function() -> None:
    logits = logits_of(BIG)
    before = logits.copy()
    state = sampling.begin(make({"repeat_penalty": 1.1}), seed=3).after((1, 2, 3))
    first, second = sampling.step(state, logits), sampling.step(state, logits)
    assert first == second
    np.testing.assert_array_equal(logits, before)
    assert first[1].count == 4


def test_seed_completion_and_place_change_the_draw() -> None:
    logits = np.zeros(BIG, np.float32)
    options = make(OFF)
    base = sampling.begin(options, 1)
    draws = [
        sampling.step(state, logits)[0]
        for state in (base, sampling.begin(options, 2), sampling.begin(make({**OFF, "completion": 1}), 1), base.after((0,)))
    ]
    assert len(set(draws)) == 4


def test_what_the_chain_takes_away_does_not_move_the_noise() -> None:
    # The same token wins with and without a filter that keeps it: noise belongs to ids, not to places in a list.
    logits = logits_of(5000, spread=1)
    free = sampling.begin(make(OFF), seed=9)
    cut = sampling.begin(make({**OFF, "min_p": 1e-30}), seed=9)
    for _ in range(50):
        (one, free), (two, cut) = sampling.step(free, logits), sampling.step(cut, logits)
        assert one == two


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_an_error(bad: float) -> None:
    logits = logits_of(1000)
    logits[500] = bad
    for given in ({}, {"temperature": 0}, OFF):
        with pytest.raises(BackendError, match="not finite"):
            sampling.step(sampling.begin(make(given), 0), logits)


def test_impossible_tokens_are_no_error() -> None:
    logits = np.full(1000, -np.inf, np.float32)
    logits[[3, 500]] = 1
    for given in ({}, {"temperature": 0}, OFF, {"top_k": 0}):
        assert sampling.step(sampling.begin(make(given), 0), logits)[0] in (3, 500)


@pytest.mark.parametrize("ends", [(), (3, 7)])
@pytest.mark.parametrize(
    ("given", "looked_at"), [({}, 40), ({"temperature": 0}, 1), ({"top_k": 5, "min_p": 0.3}, 5), ({"top_k": 0}, 0), ({"top_k": 65}, 0)]
)
def test_the_likeliest_are_enough(given: dict[str, Any], looked_at: int, ends: tuple[int, ...]) -> None:
    for seed in range(40):
        logits = logits_of(300, seed, spread=2)
        logits[3] = 20  # the likeliest by far, and banned below
        state = sampling.begin(make({**given, "ignore_eos": bool(ends)}), seed, ends=ends)
        assert state.likeliest == (looked_at + len(ends) if looked_at else 0)
        if state.likeliest:
            assert sampling.step(state, likeliest(logits, state.likeliest)) == sampling.step(state, logits)


def test_penalties_need_all_logits() -> None:
    assert sampling.begin(make({"repeat_penalty": 1.1}), 0).likeliest == 0


def test_likeliest_that_are_no_numbers() -> None:
    state = sampling.begin(make({}), 0)
    with pytest.raises(BackendError, match="not finite"):
        sampling.step(state, likeliest(np.array([1, np.nan, 2], np.float32), 2))
