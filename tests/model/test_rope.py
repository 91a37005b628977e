"""Angles of rotary embedding: by hand, against a scalar form of the papers' formulas, and position by position."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localllm.model.program import Rope
from localllm.model.rope import cos_sin, frequencies, magnitude, ramp

PLAIN = Rope("neox", 4, 10000.0)
YARN = Rope("norm", 32, 10000.0, freq_scale=0.25, ext_factor=1.0, original_context=64)


def test_by_hand() -> None:
    found = cos_sin(PLAIN, None, 3, 2)
    assert found.dtype == np.float32 and found.shape == (2, 4)
    expected = [[math.cos(3), math.cos(0.03), math.sin(3), math.sin(0.03)], [math.cos(4), math.cos(0.04), math.sin(4), math.sin(0.04)]]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_position_zero_does_not_turn() -> None:
    np.testing.assert_array_equal(cos_sin(YARN, None, 0, 1) / np.float32(magnitude(YARN)), [[1.0] * 16 + [0.0] * 16])


def test_linear_scaling_slows_positions() -> None:
    slow = Rope("norm", 8, 10000.0, freq_scale=0.25)
    np.testing.assert_array_equal(cos_sin(slow, None, 40, 1), cos_sin(Rope("norm", 8, 10000.0), None, 10, 1))


def test_factors_divide_frequencies() -> None:
    found = cos_sin(PLAIN, np.array([1, 8], np.float32), 5, 1)
    np.testing.assert_array_equal(found, np.array([[math.cos(5), math.cos(0.05 / 8), math.sin(5), math.sin(0.05 / 8)]], np.float32))


def test_attn_factor_scales() -> None:
    found = cos_sin(Rope("norm", 2, 10000.0, attn_factor=2.5), None, 1, 1)
    np.testing.assert_array_equal(found, np.array([[2.5 * math.cos(1), 2.5 * math.sin(1)]], np.float32))


def test_yarn_by_hand() -> None:
    # Pairs that turn 32 times in 64 positions: below 0. Once: 32 ln(64 / 2 pi) / (2 ln 10000) = 4.03, so up to pair 5.
    np.testing.assert_allclose(ramp(YARN), [1, 0.8, 0.6, 0.4, 0.2] + [0] * 11, atol=1e-12)
    assert magnitude(YARN) == 1 + 0.1 * math.log(4)
    mixed = [1.0, 0.8 + 0.2 / 4, 0.6 + 0.4 / 4, 0.4 + 0.6 / 4, 0.2 + 0.8 / 4] + [0.25] * 11
    np.testing.assert_allclose(frequencies(YARN, None), [10000 ** (-i / 16) * share for i, share in enumerate(mixed)], rtol=1e-12)


def test_yarn_that_does_not_stretch_has_no_magnitude() -> None:
    assert magnitude(Rope("norm", 32, 10000.0, freq_scale=1.0, ext_factor=1.0, original_context=64)) == 1
    assert magnitude(Rope("norm", 32, 10000.0, freq_scale=2.0, ext_factor=1.0, original_context=64)) == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40000), st.integers(1, 33), st.sampled_from([2, 6, 24, 64, 80, 128]), st.booleans())
def test_a_row_depends_on_its_position_alone(first: int, count: int, dim: int, yarn: bool) -> None:
    rope = Rope("neox", dim, 5e5, freq_scale=0.25 if yarn else 1, ext_factor=float(yarn), original_context=8192)
    whole = cos_sin(rope, None, first, count)
    for row in range(count):
        np.testing.assert_array_equal(whole[row : row + 1], cos_sin(rope, None, first + row, 1))


@pytest.mark.parametrize("original", [64, 4096, 32768])
@pytest.mark.parametrize(("fast", "slow", "ext"), [(32.0, 1.0, 1.0), (8.0, 2.0, 0.5)])
def test_yarn_against_the_scalar_form(original: int, fast: float, slow: float, ext: float) -> None:
    rope = Rope("norm", 64, 1e6, 0.125, ext_factor=ext, attn_factor=1.5, beta_fast=fast, beta_slow=slow, original_context=original)
    found = cos_sin(rope, None, 1000, 1)[0]
    for pair in range(32):
        angle, scale = _scalar(rope, 1000, pair)
        assert found[pair] == pytest.approx(scale * math.cos(angle), abs=1e-6)
        assert found[32 + pair] == pytest.approx(scale * math.sin(angle), abs=1e-6)


def _scalar(rope: Rope, position: int, pair: int) -> tuple[float, float]:
    def correction(turns: float) -> float:
        return rope.dim * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.freq_base))

    low, high = max(0, math.floor(correction(rope.beta_fast))), min(rope.dim - 1, math.ceil(correction(rope.beta_slow)))
    extrapolated = position * rope.freq_base ** (-2 * pair / rope.dim)
    mix = (1 - min(1, max(0, (pair - low) / max(0.001, high - low)))) * rope.ext_factor
    angle = extrapolated * rope.freq_scale * (1 - mix) + extrapolated * mix
    return angle, rope.attn_factor * (1 + 0.1 * math.log(1 / rope.freq_scale))
