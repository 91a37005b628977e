from __future__ import annotations

import numpy as np
import pytest

from localllm.generation import noise


def test_the_noise_of_a_place_is_pinned() -> None:
    # A seed means the same on every machine and in every version: first the number, then the formula in Python's integers.
    place = noise.key(42, 0, 10)
    assert place == 3760106691694886950
    mask = 2**64 - 1
    for token in (0, 1, 151935):
        bits = (place + (token + 1) * 0x9E3779B97F4A7C15) & mask
        bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & mask
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & mask
        bits ^= bits >> 31
        uniform = ((bits >> 11) + 0.5) / 2**53
        assert np.isclose(noise.gumbel(place, np.array([token]))[0], -np.log(-np.log(uniform)), rtol=1e-14)


@pytest.mark.parametrize("count", [1, 20, 50])
def test_the_noise_of_a_few_tokens_is_the_same(count: int) -> None:
    ids = np.random.default_rng(count).integers(0, 2**20, count)
    for place in (0, noise.key(1, 2, 3), 2**64 - 1):
        np.testing.assert_allclose(noise.of_few(place, ids.tolist()), noise.gumbel(place, ids), rtol=1e-14)


def test_the_hash_is_splitmix64() -> None:
    # Its first output for seed 0, as published.
    assert noise._mix(noise._GOLDEN) == 0xE220A8397B1DCDAF


def test_every_part_of_the_place_changes_the_noise() -> None:
    places = {noise.key(seed, completion, count) for seed in range(20) for completion in range(20) for count in range(20)}
    assert len(places) == 8000


def test_seeds_beyond_64_bits_of_sum_do_not_overflow() -> None:
    assert np.isfinite(noise.gumbel(noise.key(2**64 - 1, 3, 10**6), np.arange(100))).all()


def test_it_is_gumbel_noise_over_ids_and_over_places() -> None:
    # Mean: Euler's constant; variance: pi^2 / 6. Six standard errors for 200,000 draws.
    over_ids = noise.gumbel(noise.key(1, 0, 0), np.arange(200_000))
    over_places = np.concatenate([noise.gumbel(noise.key(1, 0, count), np.arange(100)) for count in range(2000)])
    for drawn in (over_ids, over_places):
        assert abs(drawn.mean() - np.euler_gamma) < 0.018
        assert abs(drawn.var() - np.pi**2 / 6) < 0.06


def test_neighbours_are_not_correlated() -> None:
    a = noise.gumbel(noise.key(1, 0, 0), np.arange(100_000))
    for other in (a[1:], noise.gumbel(noise.key(1, 0, 1), np.arange(100_000)), noise.gumbel(noise.key(2, 0, 0), np.arange(100_000))):
        n = min(len(a), len(other))
        assert abs(np.corrcoef(a[:n], other[:n])[0, 1]) < 0.02
