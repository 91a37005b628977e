"""Quantisers find what is there to be found: values that lie on the grid of a format come back."""

from __future__ import annotations

import numpy as np
import pytest

from localllm import quant
from localllm.quant.search import fit_affine, fit_scale


def test_an_exact_affine_grid_is_found() -> None:
    codes = np.arange(32, dtype=np.float32)[None] % 16
    x = np.float32(0.25) * codes - np.float32(1.5)
    scale, low = fit_affine(x, np.ones_like(x), 15, [14.5, 15.0, 15.5])
    np.testing.assert_allclose(scale, [0.25], rtol=1e-5)
    np.testing.assert_allclose(low, [1.5], rtol=1e-5)


def test_a_minimum_above_zero_is_not_subtracted() -> None:
    x = np.full((1, 16), 2.0, np.float32)
    scale, low = fit_affine(x, np.ones_like(x), 15, [15.0])
    np.testing.assert_allclose(scale * 15, [2.0], rtol=1e-6)
    assert low == [0.0]


def test_an_exact_scale_is_found() -> None:
    x = np.arange(-4, 4, dtype=np.float32)[None] * np.float32(-0.5)
    found = fit_scale(x, np.ones_like(x), lambda v: np.clip(np.rint(v), -4, 3), [-4.3, -4.0, -3.7])
    np.testing.assert_allclose(found, [-0.5], rtol=1e-6)


def test_zeros_have_no_scale() -> None:
    zeros = np.zeros((2, 16), np.float32)
    assert (fit_scale(zeros, zeros, np.rint, [-4.0]) == 0).all()
    assert all((part == 0).all() for part in fit_affine(zeros, zeros, 15, [15.0]))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4", "Q1_0", "IQ4_NL"])
def test_what_was_quantised_once_stays(name: str) -> None:
    values = np.random.default_rng(2).standard_normal((8, 256)).astype(np.float32)
    once = quant.dequantize(quant.quantize(values, name), name)
    twice = quant.dequantize(quant.quantize(once, name), name)
    np.testing.assert_allclose(twice, once, rtol=2e-3, atol=1e-6)
