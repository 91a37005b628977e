"""Each sampler against its definition, over random distributions: whole vocabularies, ranked tokens and parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from localllm.generation import noise, sampling
from localllm.generation.candidates import Candidates, Float, many
from localllm.generation.checks import SAMPLERS
from localllm.generation.filters.dry import Dry
from localllm.generation.filters.mirostat import Mirostat, Mirostat1
from localllm.generation.filters.penalties import Penalties
from localllm.generation.filters.shape import XTC, DynamicTemperature, TopNSigma, Typical
from localllm.generation.options import make
from tests.generation.filters import slow

STATE = sampling.State((), seed=0)
EASY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])

seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([1, 2, 3, 17, 64, 65, 300, 500])
spreads = st.sampled_from([0.1, 1.0, 3.0, 10.0])
shares = st.floats(0.01, 0.99)
keeps = st.integers(0, 5)


@st.composite
def logits(draw: st.DrawFn, sizes: st.SearchStrategy[int] = sizes) -> Float:
    """A vocabulary's logits: continuous, or with many ties, or with tokens that are banned."""
    rng = np.random.default_rng(draw(seeds))
    values = rng.standard_normal(draw(sizes)) * draw(spreads)
    if draw(st.booleans()):
        values = np.round(values * 2) / 2
    if draw(st.booleans()):
        values[1:][rng.random(len(values) - 1) < 0.3] = -np.inf
    return rng.permutation(values).astype(np.float32)


def forms(values: Float) -> list[sampling.Tokens]:
    """The same tokens in each form that a chain has: in the vocabulary's order, ranked, and picked out of a larger vocabulary."""
    ids = np.arange(len(values)) * 2 + 1
    wide = np.full(2 * len(values) + 1, -np.inf, np.float32)
    wide[ids] = values
    return [Candidates(values), Candidates(values).best(len(values)), Candidates(wide).take(ids)]


def plain(tokens: sampling.Tokens) -> slow.Tokens:
    """As the slow ones take them; checks what every filter promises: at least one token, in an order that ties can be told by."""
    ids, values = [int(i) for i in tokens.names()], [float(one) for one in tokens.logits]
    pairs = list(zip(ids, values, strict=True))
    assert pairs
    if not isinstance(tokens, Candidates) or tokens.ranked:
        assert values == sorted(values, reverse=True)
    else:
        assert ids == sorted(ids)
    return slow.ranked(pairs)


def agree(filter: sampling.Filter, one: Callable[[slow.Tokens], slow.Tokens], values: Float, state: sampling.State = STATE) -> None:
    """The filter leaves what the definition leaves, with the same logits but for float32's rounding and a shift of all alike."""
    for tokens in forms(values):
        before = many(tokens).logits.copy()
        got, wanted = plain(filter(tokens, state)), one(plain(tokens))
        np.testing.assert_array_equal(many(tokens).logits, before)
        assert {token for token, _ in got} == {token for token, _ in wanted}
        told = dict(got)
        order = [token for token, _ in wanted]
        a, b = np.array([told[token] for token in order]), np.array([logit for _, logit in wanted])
        np.testing.assert_allclose(a - a.max(), b - b.max(), rtol=1e-5, atol=1e-4)


def clear(one: Callable[[float], slow.Tokens], value: float) -> None:
    """Drops an example whose border is so near that roundings decide."""
    assume(one(value * (1 - 1e-5)) == one(value * (1 + 1e-5)))


@EASY
@given(values=logits(), p=shares, keep=keeps)
def test_top_p(values: Float, p: float, keep: int) -> None:
    clear(lambda p: slow.top_p(plain(Candidates(values)), p, keep), p)
    agree(sampling.TopP(p, keep), lambda tokens: slow.top_p(tokens, p, keep), values)


@EASY
@given(values=logits(), p=shares, keep=keeps)
def test_min_p(values: Float, p: float, keep: int) -> None:
    clear(lambda p: slow.min_p(plain(Candidates(values)), p, keep), p)
    agree(sampling.MinP(p, keep), lambda tokens: slow.min_p(tokens, p, keep), values)


@EASY
@given(values=logits(), k=st.integers(1, 70))
def test_top_k(values: Float, k: int) -> None:
    agree(sampling.TopK(k), lambda tokens: slow.top_k(tokens, k), values)


@EASY
@given(values=logits(), p=shares, keep=keeps)
def test_typical(values: Float, p: float, keep: int) -> None:
    for tokens in forms(values):
        wanted, odds = slow.typical(plain(tokens), p, keep), dict(zip(plain(tokens), slow.chances(plain(tokens)), strict=True))
        clear(lambda p, tokens=tokens: slow.typical(plain(tokens), p, keep), p)  # type: ignore[misc]
        got = plain(Typical(p, keep)(tokens, STATE))
        # Equally typical tokens are exchangeable: so many of each surprise are left.
        np.testing.assert_allclose([odds[each] for each in got], [odds[each] for each in wanted])


@EASY
@given(values=logits(), n=st.floats(0.1, 4))
def test_top_n_sigma(values: Float, n: float) -> None:
    clear(lambda n: slow.top_n_sigma(plain(Candidates(values)), n), n)
    agree(TopNSigma(n), lambda tokens: slow.top_n_sigma(tokens, n), values)


@EASY
@given(values=logits(), threshold=st.floats(0.001, 0.5), keep=st.integers(0, 20))
def test_xtc(values: Float, threshold: float, keep: int) -> None:
    clear(lambda threshold: slow.xtc(plain(Candidates(values)), threshold, keep), threshold)
    agree(XTC(1.0, threshold, keep), lambda tokens: slow.xtc(tokens, threshold, keep), values)


@EASY
@given(values=logits(), t=st.floats(0.1, 3))
def test_temperature(values: Float, t: float) -> None:
    agree(sampling.Temperature(t), lambda tokens: slow.temperature(tokens, t), values)


@EASY
@given(values=logits(), low=st.floats(0.1, 1), more=st.floats(0, 2), exponent=st.floats(0, 3))
def test_dynamic_temperature(values: Float, low: float, more: float, exponent: float) -> None:
    agree(DynamicTemperature(low, low + more, exponent, 1e-38), lambda tokens: slow.dynamic(tokens, low, low + more, exponent), values)


pasts = st.lists(st.integers(0, 4), max_size=40).map(tuple)


@EASY
@given(
    values=logits(st.just(5)),
    past=pasts,
    repeat=st.floats(0.5, 2),
    presence=st.floats(-2, 2),
    frequency=st.floats(-1, 1),
    n=st.integers(-1, 9),
)
def test_penalties(values: Float, past: tuple[int, ...], repeat: float, presence: float, frequency: float, n: int) -> None:
    state = sampling.State((), 0, recent=past)
    window = past if n < 0 else past[len(past) - min(n, len(past)) :]
    agree(
        Penalties(repeat, presence, frequency, n), lambda tokens: slow.penalties(tokens, window, repeat, presence, frequency), values, state
    )


@settings(EASY, max_examples=200)
@given(
    values=logits(st.just(5)),
    past=pasts,
    base=st.sampled_from([1.0, 1.0000005, 1.3, 1.75, 2.0, 1e20]),
    allowed=st.integers(0, 4),
    n=st.integers(-1, 30),
    breakers=st.dictionaries(
        st.integers(0, 4), st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=2).map(tuple), max_size=2
    ),
)
def test_dry(values: Float, past: tuple[int, ...], base: float, allowed: int, n: int, breakers: dict[int, tuple[Any, ...]]) -> None:
    state = sampling.State((), 0, recent=past)
    window = past if n < 0 else past[len(past) - min(n, len(past)) :]
    agree(Dry(0.7, base, allowed, n, breakers), lambda tokens: slow.dry(tokens, window, 0.7, base, allowed, breakers), values, state)


@pytest.mark.parametrize("base", [1.75, 1.2])
def test_dry_grows_only_so_far(base: float) -> None:
    # A repetition of a thousand tokens: the penalty is the largest that float32 has room for, and found without walking all of them.
    past = (1, 2) * 500
    values = np.zeros(3, np.float32)
    state = sampling.State((), 0, recent=past)
    agree(Dry(1e-30, base, 2, -1), lambda tokens: slow.dry(tokens, past, 1e-30, base, 2, {}), values, state)


@EASY
@given(values=logits(), mu=st.floats(0.1, 12))
def test_mirostat_2(values: Float, mu: float) -> None:
    clear(lambda mu: slow.mirostat_2(plain(Candidates(values)), mu), mu)
    agree(Mirostat(5.0, 0.1), lambda tokens: slow.mirostat_2(tokens, mu), values, sampling.State((), 0, mu=mu))


@EASY
@given(values=logits(st.sampled_from([20, 300, 1500])), mu=st.floats(0.1, 12))
def test_mirostat_1(values: Float, mu: float) -> None:
    tokens = plain(Candidates(values))
    head = [logit for _, logit in tokens[:100] if logit > -math.inf]
    assume(head[0] > head[-1])
    clear(lambda mu: slow.mirostat_1(tokens, mu, len(values)), mu)
    state = sampling.State((), 0, mu=mu)
    assert plain(Mirostat1(5.0, 0.1)(Candidates(values), state)) == slow.mirostat_1(tokens, mu, len(values))


ORDERS = st.permutations(SAMPLERS)


@settings(EASY, max_examples=60)
@given(seed=seeds, order=ORDERS, past=st.lists(st.integers(0, 30), max_size=80), size=st.sampled_from([31, 700]), xtc=st.booleans())
def test_whole_chains_in_any_order(seed: int, order: list[str], past: list[int], size: int, xtc: bool) -> None:
    chosen: dict[str, Any] = {
        "temperature": 0.7,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.02,
        "typical_p": 0.97,
        "top_n_sigma": 2.5,
        "xtc_probability": float(xtc),
        "repeat_penalty": 1.2,
        "presence_penalty": 0.1,
        "repeat_last_n": 20,
        "dry_multiplier": 0.8,
        "dry_penalty_last_n": 50,
    }
    rules: dict[str, slow.Sampler] = {
        "penalties": lambda tokens: slow.penalties(tokens, past[-20:], 1.2, 0.1, 0.0),
        "dry": lambda tokens: slow.dry(tokens, past[-50:], 0.8, 1.75, 2, {}),
        "top_n_sigma": lambda tokens: slow.top_n_sigma(tokens, 2.5),
        "top_k": lambda tokens: slow.top_k(tokens, 50),
        "typ_p": lambda tokens: slow.typical(tokens, 0.97),
        "top_p": lambda tokens: slow.top_p(tokens, 0.9),
        "min_p": lambda tokens: slow.min_p(tokens, 0.02),
        "xtc": lambda tokens: slow.xtc(tokens, 0.1) if xtc else tokens,
        "temperature": lambda tokens: slow.temperature(tokens, 0.7),
    }
    values = (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)
    state = sampling.begin(make({**chosen, "samplers": order}), seed).after(past)
    token, _ = sampling.step(state, values)

    left = plain(Candidates(values))
    for name in order:
        left = rules[name](left)
    added = noise.gumbel(noise.key(seed, 0, len(past)), np.array([token for token, _ in left]))
    assert token == left[int((np.array([logit for _, logit in left]) + added).argmax())][0]
