"""Cases worked out on paper, one or more for each sampler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localllm.backends.base import likeliest
from localllm.errors import OptionError
from localllm.generation import noise, sampling
from localllm.generation.candidates import Candidates, Float
from localllm.generation.chain import chain_of, memory_of
from localllm.generation.filters.bias import Bias, Process
from localllm.generation.filters.dry import Dry
from localllm.generation.filters.mirostat import Mirostat, count
from localllm.generation.filters.penalties import Penalties
from localllm.generation.filters.shape import XTC, DynamicTemperature, TopNSigma, Typical
from localllm.generation.options import make

STATE = sampling.State((), seed=0)
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


def of(*chances: float) -> Candidates:
    """A vocabulary with these probabilities."""
    return Candidates(np.log(np.array(chances, np.float32)))


def left(filter: sampling.Filter, *chances: float, state: sampling.State = STATE) -> list[int]:
    """The ids that a filter leaves, in order of id."""
    return sorted(int(i) for i in filter(of(*chances), state).names())


def changed(filter: sampling.Filter, values: Sequence[float], *past: int) -> list[float]:
    """The logits that a filter makes of these, after these tokens."""
    found = filter(Candidates(np.array(values, np.float32)), sampling.State((), 0, recent=past))
    assert list(found.names()) == list(range(len(values)))
    return [round(float(one), 5) for one in found.logits]


def test_typical_tokens() -> None:
    # Surprises 0.92 and 1.61 bits of e around an entropy of 1.33: the three at 1.61 are nearer, and two of them (0.4) are not above 0.4.
    assert left(Typical(0.5), 0.4, 0.2, 0.2, 0.2) == [1, 2, 3]
    assert left(Typical(0.39), 0.4, 0.2, 0.2, 0.2) == [1, 2]
    # A token as likely as 0.97 is the typical one alone.
    assert left(Typical(0.5), 0.97, 0.01, 0.01, 0.01) == [0]
    assert left(Typical(0.5, keep=3), 0.97, 0.01, 0.01, 0.01) == [0, 1, 2]


def test_standard_deviations() -> None:
    # Logits 0, 1, 2, 5: mean 2, deviation sqrt((4 + 1 + 0 + 9) / 4) = 1.87.
    tokens = Candidates(np.array([0, 1, 2, 5], np.float32))
    for n, kept in ((1.0, [3]), (1.61, [2, 3]), (2.14, [1, 2, 3]), (2.7, [0, 1, 2, 3])):
        assert list(TopNSigma(n)(tokens, STATE).names()) == kept
    # Banned tokens are in neither the mean nor the deviation.
    tokens = Candidates(np.array([0, 1, 2, 5, -np.inf], np.float32))
    assert list(TopNSigma(1.61)(tokens, STATE).names()) == [2, 3]


def test_excluding_top_choices() -> None:
    for threshold, kept in ((0.09, [3]), (0.19, [2, 3]), (0.29, [1, 2, 3]), (0.39, [0, 1, 2, 3])):
        assert left(XTC(1.0, threshold), 0.4, 0.3, 0.2, 0.1) == kept
    assert left(XTC(1.0, 0.1), 0.25, 0.25, 0.25, 0.25) == [3]  # of equal ones the last
    assert left(XTC(1.0, 0.19, keep=2), 0.4, 0.3, 0.2, 0.1) == [2, 3]
    assert left(XTC(1.0, 0.19, keep=3), 0.4, 0.3, 0.2, 0.1) == [0, 1, 2, 3]  # all or nothing


def test_the_coin_falls_as_often_as_it_should_and_the_same_way_again() -> None:
    one = XTC(0.3, 0.1)
    states = [sampling.State((), seed=5, count=n) for n in range(4000)]
    fell = [left(one, 0.5, 0.5, state=state) == [1] for state in states]
    assert abs(np.mean(fell) - 0.3) < 0.03  # four standard errors
    assert fell[:50] == [left(one, 0.5, 0.5, state=state) == [1] for state in states[:50]]
    # It is no token's noise, and another one for each completion.
    place = noise.key(5, 0, 0)
    uniforms = np.exp(-np.exp(-noise.gumbel(place, np.arange(1000))))
    assert np.abs(uniforms - noise.coin(place)).min() > 1e-9
    assert noise.coin(place) != noise.coin(noise.key(5, 1, 0))


def test_a_temperature_that_follows_the_entropy() -> None:
    one = DynamicTemperature(0.5, 1.5, 1.0, sampling.COLDEST)
    # As uncertain as can be: the upper end, 1.5. Surely one of them: the lower.
    np.testing.assert_allclose(one(of(0.25, 0.25, 0.25, 0.25), STATE).logits, [0, 0, 0, 0])
    sure = one(Candidates(np.array([0, -100, -100], np.float32)), STATE)
    np.testing.assert_allclose(sure.logits, [0, -200, -200], rtol=1e-5)
    # Entropy of (0.5, 0.25, 0.25) is 1.5 bits of log2(3) = 1.585 at most: 0.9464, so 0.5 + 1.0 * 0.9464 = 1.4464.
    np.testing.assert_allclose(one(of(0.5, 0.25, 0.25), STATE).logits, [0, -math.log(2) / 1.4464, -math.log(2) / 1.4464], rtol=1e-4)
    squared = DynamicTemperature(0.5, 1.5, 2.0, sampling.COLDEST)  # 0.5 + 0.9464 ** 2 = 1.3957
    np.testing.assert_allclose(squared(of(0.5, 0.25, 0.25), STATE).logits[1], -math.log(2) / 1.3957, rtol=1e-4)
    assert list(one(of(1.0), STATE).names()) == [0]


def test_penalties_of_a_part() -> None:
    # After top-k the tokens are ranked; penalised, their order is another one.
    tokens = Candidates(np.array([1, 4, 2, 3], np.float32)).best(3)
    found = Penalties(2, 0.5, 0.25, 3)(tokens, sampling.State((), 0, recent=(2, 1, 1, 3)))
    assert dict(zip(map(int, found.names()), map(float, found.logits), strict=True)) == {1: 4 / 2 - 1.0, 2: 2, 3: 3 / 2 - 0.75}
    assert list(found.best(3).names()) == [2, 1, 3]


def test_dry() -> None:
    flat = [0.0] * 5
    # The line ends with 0 1, which stood before, with 2 behind it: 2 would make it three. 1 x 1.1 ^ (2 - 2).
    assert changed(Dry(1.0, 1.1, 2, -1), flat, 0, 1, 2, 0, 1) == [0, 0, -1, 0, 0]
    assert changed(Dry(2.0, 1.1, 2, -1), flat, 0, 1, 2, 0, 1) == [0, 0, -2, 0, 0]
    # Three in common, one over: 1.5 ^ 1. The shorter one with 4 behind it counts 1.5 ^ 0.
    assert changed(Dry(1.0, 1.5, 2, -1), flat, 0, 1, 2, 3, 1, 2, 4, 0, 1, 2) == [0, 0, 0, -1.5, -1]
    # Not longer than allowed, or out of the window.
    assert changed(Dry(1.0, 1.1, 3, -1), flat, 0, 1, 2, 0, 1) == flat
    assert changed(Dry(1.0, 1.1, 2, 4), flat, 0, 1, 2, 0, 1) == flat
    # It may overlap itself: 1 1 1 stood one token before, with 1 behind it.
    assert changed(Dry(1.0, 2.0, 2, -1), flat, 1, 1, 1, 1) == [0, -2, 0, 0, 0]


def test_no_value_that_an_option_may_have_overflows() -> None:
    far = 1e20
    options: list[dict[str, Any]] = [
        {"dry_multiplier": far, "dry_base": base, "dry_allowed_length": 0, "dry_penalty_last_n": -1, "temperature": 1e-5}
        for base in (1.0, 1.0000005, 1.75, far)
    ]
    options += [{"repeat_penalty": far}, {"repeat_penalty": 1e-20}, {"presence_penalty": far, "frequency_penalty": far}]
    options += [{"presence_penalty": -far}, {"top_n_sigma": far}, {"temperature": far}, {"temperature": far, "dynatemp_range": far}]
    options += [{"mirostat": version, "mirostat_tau": tau, "mirostat_eta": 1e6} for version in (1, 2) for tau in (0.0, 1e6)]
    options += [{"logit_bias": {3: by}, "temperature": 1e-5} for by in (1e30, -1e30)]
    for given in options:
        state = sampling.begin(make(given), 1).after((1, 2) * 300)
        for seed in range(5):
            row = (np.random.default_rng(seed).standard_normal(300) * 20).astype(np.float32)
            token, state = sampling.step(state, row)
            assert 0 <= token < 300 and (state.mu is None or math.isfinite(state.mu))


def test_a_sequence_breaker_ends_a_repetition() -> None:
    flat = [0.0] * 5
    past = (0, 3, 1, 2, 0, 3, 1)
    assert changed(Dry(1.0, 2.0, 1, -1), flat, *past) == [0, 0, -4, 0, 0]  # 0 3 1 are three: 2 ^ 2
    assert changed(Dry(1.0, 2.0, 1, -1, {3: ((),)}), flat, *past) == [0, 0, -1, 0, 0]  # 1 alone
    assert changed(Dry(1.0, 2.0, 2, -1, {3: ((),)}), flat, *past) == flat
    assert changed(Dry(1.0, 2.0, 1, -1, {3: ((1,),)}), flat, *past) == flat  # 3 1 is a breaker of two tokens
    assert changed(Dry(1.0, 2.0, 1, -1, {3: ((2,),)}), flat, *past) == [0, 0, -4, 0, 0]  # 3 2 is one, and does not occur
    # A token that breaks sequences is never penalised; one that only begins a breaker is.
    assert changed(Dry(1.0, 2.0, 1, -1, {2: ((),)}), flat, *past) == flat
    assert changed(Dry(1.0, 2.0, 1, -1, {2: ((4,),)}), flat, *past) == [0, 0, -4, 0, 0]


def test_bias() -> None:
    assert changed(Bias((1, 3), (2.5, -math.inf)), [0, 0, 0, 9]) == [0, 2.5, 0, -math.inf]
    state = sampling.begin(make({"temperature": 0, "logit_bias": {0: 100.0, 2: -math.inf}}), 1)
    assert sampling.step(state, np.array([0, 50, 200], np.float32))[0] == 0


def test_mirostat_keeps_what_is_not_too_surprising_and_learns() -> None:
    # Surprises 1, 2, 3 and 3 bits.
    for mu, kept in ((3.1, [0, 1, 2, 3]), (2.9, [0, 1]), (1.5, [0]), (0.2, [0])):
        assert left(Mirostat(5, 0.1), 0.5, 0.25, 0.125, 0.125, state=sampling.State((), 0, mu=mu)) == kept
    # Of 0.5 and 0.25, the second has a third of the probability: log2(3) = 1.585 bits, 3.415 under the target of 5.
    tokens = Mirostat(5, 0.1)(of(0.5, 0.25, 0.125, 0.125), sampling.State((), 0, mu=2.9))
    assert Mirostat(5, 0.1).learnt(2.9, tokens, 1) == pytest.approx(2.9 + 0.1 * (5 - math.log2(3)))


def test_mirostat_1_counts_by_zipfs_law() -> None:
    # Probabilities 1 / rank: the exponent is 1, k = 2 ^ mu / log(vocabulary).
    zipf = -np.log(np.arange(1, 101, dtype=np.float64))
    assert count(zipf, 8.0, 1000) == int(2**8 / math.log(1000))
    # 1 / rank ^ 2: k = (2 ^ mu / (1 - 1 / vocabulary)) ^ (1 / 2).
    assert count(2 * zipf, 8.0, 1000) == int(math.sqrt(2**8 / (1 - 1 / 1000)))
    assert count(zipf, 50.0, 1000) == 1000 and count(zipf, -50.0, 1000) == 1
    assert count(np.zeros(100), 8.0, 1000) in (1, 1000) and count(np.zeros(1), 8.0, 1000) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_is_a_fold(version: int) -> None:
    options = make({"mirostat": version, "mirostat_tau": 3.0})
    begun = sampling.begin(options, seed=7)
    assert begun.mu == 6.0
    rows = [(np.random.default_rng(n).standard_normal(1000) * 3).astype(np.float32) for n in range(30)]
    states = [begun]
    for row in rows:
        states.append(sampling.step(states[-1], row)[1])
    assert len({state.mu for state in states}) > 20
    # A step that is taken again from an earlier state knows nothing of what was learnt since.
    assert sampling.step(states[10], rows[10])[1] == states[11]
    assert sampling.begin(make({"mirostat": version, "temperature": 0}), 7).mu is None


def test_mirostat_settles_at_its_target() -> None:
    state = sampling.begin(make({"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.1, "temperature": 1.0}), seed=3)
    seen = []
    for n in range(400):
        row = (np.random.default_rng(n).standard_normal(300) * 2).astype(np.float32)
        before = state.mu
        _, state = sampling.step(state, row)
        assert before is not None and state.mu is not None
        seen.append(2.0 - (state.mu - before) / 0.1)
    assert abs(np.mean(seen[100:]) - 2.0) < 0.2


def test_processors_come_first_and_know_the_whole_line() -> None:
    asked: list[tuple[int, ...]] = []

    def only(tokens: Sequence[int], logits: Float) -> Float:
        asked.append(tuple(tokens))
        logits[:] = -np.inf
        logits[len(tokens) % 5] = 1
        return logits

    state = sampling.begin(make({"logits_processors": only, "logit_bias": {4: 3.0}}), 1).after((7, 8))
    row = np.zeros(5, np.float32)
    for expected in (2, 3, 4, 0):
        token, state = sampling.step(state, row)
        assert token == expected
    assert asked == [(7, 8), (7, 8, 2), (7, 8, 2, 3), (7, 8, 2, 3, 4)]
    assert not row.any()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda tokens, logits: logits[:-1], r"float32 of shape \(3,\); expected floats of shape \(4,\)"),
        (lambda tokens, logits: [1, 2, 3, 4], "int64 of shape"),
        (lambda tokens, logits: logits - np.inf, "-inf as the largest logit"),
        (lambda tokens, logits: logits * np.nan, "nan as the largest logit"),
    ],
)
def test_what_a_processor_may_not_give(wrong: Any, says: str) -> None:
    with pytest.raises(OptionError, match=f"logits processor '<lambda>' gave {says}"):
        Process(wrong)(of(0.25, 0.25, 0.25, 0.25), STATE)


def test_a_processor_may_give_float64() -> None:
    found = Process(lambda tokens, logits: logits.astype(np.float64) * 2)(of(0.5, 0.5), STATE)
    assert found.logits.dtype == np.float32  # type: ignore[union-attr]


def names(**options: Any) -> list[str]:
    return [type(one).__name__ for one in chain_of(make(options))]


def test_the_chain_has_the_order_of_samplers_and_nothing_that_is_off() -> None:
    every = {
        "repeat_penalty": 1.1,
        "dry_multiplier": 0.8,
        "top_n_sigma": 1.0,
        "typical_p": 0.9,
        "xtc_probability": 0.5,
        "dynatemp_range": 0.2,
    }
    order = ["Penalties", "Dry", "TopNSigma", "TopK", "Typical", "TopP", "MinP", "XTC", "DynamicTemperature"]
    assert names(**every) == order
    assert names() == ["TopK", "TopP", "MinP", "Temperature"]
    assert names(samplers="temp;min-p;nucleus") == ["Temperature", "MinP", "TopP"]
    assert names(**every, samplers=()) == []
    assert names(logit_bias={1: 2.0, 3: -math.inf}, samplers="top_k") == ["Bias", "Ban", "TopK"]
    assert names(logits_processors=max, logit_bias={1: 2.0}) == ["Process", "Bias", "TopK", "TopP", "MinP", "Temperature"]
    off = {
        "dry_multiplier": 1.0,
        "dry_penalty_last_n": 0,
        "xtc_probability": 1.0,
        "xtc_threshold": 0.6,
        "repeat_penalty": 2.0,
        "repeat_last_n": 0,
    }
    assert names(**off) == names()


def test_greedy_needs_no_filter_that_keeps_the_likeliest() -> None:
    assert names(temperature=0) == ["Greedy"]
    assert names(temperature=0, repeat_penalty=1.1) == ["Penalties", "Greedy"]
    # These may take the likeliest away, and what comes before decides how.
    assert names(temperature=0, xtc_probability=0.5) == ["TopK", "TopP", "MinP", "XTC", "Greedy"]
    assert names(temperature=0, typical_p=0.5) == ["TopK", "Typical", "Greedy"]
    assert names(temperature=0, samplers="temperature;xtc", xtc_probability=0.5) == ["Greedy"]
    assert names(temperature=0, mirostat=2) == ["Greedy"]


def test_mirostat_stands_for_the_chain() -> None:
    assert names(mirostat=2, dynatemp_range=0.5, repeat_penalty=1.5, logit_bias={0: 1.0}) == ["Bias", "Temperature", "Mirostat"]
    assert names(mirostat=1, temperature=1.0) == ["Mirostat1"]


def test_only_as_much_of_the_past_is_kept_as_the_chain_looks_at() -> None:
    def window(**options: Any) -> int:
        return memory_of(make(options))

    assert window() == window(repeat_last_n=500) == 0
    assert window(repeat_penalty=1.1) == 64
    assert window(repeat_penalty=1.1, dry_multiplier=1.0, dry_penalty_last_n=100) == 100
    assert window(repeat_penalty=1.1, dry_multiplier=1.0, dry_penalty_last_n=-1) == -1
    assert window(repeat_penalty=1.1, samplers="top_k") == window(repeat_penalty=1.1, mirostat=2) == 0
    assert window(logits_processors=max) == -1


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({}, 40),
        ({"temperature": 0}, 1),
        ({"logit_bias": {3: -math.inf, 7: -math.inf}}, 42),
        ({"typical_p": 0.8, "xtc_probability": 0.7, "dynatemp_range": 0.5, "min_keep": 2}, 40),
        ({"samplers": "top_k;penalties;top_n_sigma;temp", "repeat_penalty": 1.5, "top_n_sigma": 1.5}, 40),
        ({"logprobs": 3}, 0),
        ({"logit_bias": {3: 1.0}}, 0),
        ({"repeat_penalty": 1.1}, 0),
        ({"mirostat": 2}, 0),
        ({"samplers": "temp;top_k"}, 0),
        ({"top_k": 65}, 0),
    ],
)
def test_the_likeliest_tokens_are_enough_where_the_chain_begins_with_them(options: dict[str, Any], needed: int) -> None:
    state = sampling.begin(make(options), seed=4).after((3, 7, 3))
    assert state.likeliest == needed
    for n in range(40 if needed else 0):
        row = (np.random.default_rng(n).standard_normal(3000) * 3).astype(np.float32)
        few, after = sampling.step(state, likeliest(row, needed))
        assert (few, after) == sampling.step(state, row)
        state = after


def test_states_that_part_know_nothing_of_each_other() -> None:
    # What a drafted token that is rejected did to penalties, DRY and mirostat is gone with its state.
    options = make({"repeat_penalty": 1.3, "dry_multiplier": 0.8, "xtc_probability": 0.5, "logprobs": 2})
    state = sampling.begin(options, seed=2).after((1, 2, 3, 1, 2))
    row = (np.random.default_rng(0).standard_normal(50)).astype(np.float32)
    first = sampling.step(state, row)
    for drafted in range(20):
        sampling.step(state.after((drafted,)), row)
    assert sampling.step(state, row) == first


def test_log_probabilities_are_the_models_own() -> None:
    row = np.log(np.array([0.1, 0.6, 0.2, 0.1], np.float32)) + 3
    state = sampling.begin(make({"temperature": 0, "logprobs": 2, "logit_bias": {3: 100.0}}), 1)
    token, after = sampling.step(state, row)
    (score,) = after.scores
    assert token == score.token == 3
    assert score.logprob == pytest.approx(math.log(0.1), rel=1e-6)
    assert [one for one, _ in score.top] == [1, 2]
    assert [logprob for _, logprob in score.top] == pytest.approx([math.log(0.6), math.log(0.2)], rel=1e-6)
    assert len(sampling.step(after, row)[1].scores) == 2 and after.forgetful().scores == ()
    (alone,) = sampling.step(sampling.begin(make({"logprobs": 0}), 1), row)[1].scores
    assert alone.top == ()
    assert sampling.step(sampling.begin(make({}), 1), row)[1].scores == ()
