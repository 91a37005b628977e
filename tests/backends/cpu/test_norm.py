"""Root-mean-square norm and addition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from localllm.backends.cpu.arguments import ADD, RMS_NORM
from localllm.backends.cpu.records import float_bits
from tests.backends.cpu.driver import Driver, Register


def rms_norm(driver: Driver, x: Register, weight: NDArray[np.float32], eps: float, out: Register | None = None) -> Register:
    """Runs the kernel."""
    rows, n = x.data.shape
    out = out or driver.empty(rows, n)
    words = {"weight": driver.weight(weight), "n": n, "eps": float_bits(eps), "rows": driver.count(rows)}
    driver.run(("norm", "rms_norm"), RMS_NORM, {**words, **x.words("x"), **out.words("out")})
    return out


@pytest.mark.parametrize(("rows", "n"), [(1, 1), (2, 63), (3, 64), (5, 65), (1, 576), (9, 896), (2, 2560)])
def test_rms_norm(rows: int, n: int, rng: np.random.Generator) -> None:
    driver = Driver(threads=2)
    x = rng.normal(0, 3, (rows, n)).astype(np.float32)
    weight = rng.normal(1, 0.3, n).astype(np.float32)
    out = rms_norm(driver, driver.register(x), weight, 1e-5)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt(np.mean(wide**2, axis=1, keepdims=True) + np.float32(1e-5)) * weight
    # Two products and a scale, each rounded once: 3 half-ulps, and the sum's own error.
    np.testing.assert_allclose(out.data, expected, rtol=5e-7, atol=0)
    out.check_padding()


def test_rms_norm_in_place_and_of_each_row_alone(rng: np.random.Generator) -> None:
    driver = Driver()
    x, weight = rng.normal(0, 1, (6, 200)).astype(np.float32), rng.normal(1, 1, 200).astype(np.float32)
    register = driver.register(x)
    apart = rms_norm(driver, register, weight, 1e-6)
    rms_norm(driver, register, weight, 1e-6, register)
    assert np.array_equal(register.data, apart.data)
    for i in range(6):
        assert np.array_equal(rms_norm(driver, driver.register(x[i : i + 1]), weight, 1e-6).data[0], apart.data[i])


def test_rms_norm_of_zeros_and_of_not_a_number() -> None:
    driver = Driver()
    x = np.zeros((2, 70), np.float32)
    x[1, 3] = np.nan
    out = rms_norm(driver, driver.register(x), np.ones(70, np.float32), 1e-6)
    assert not np.any(out.data[0])
    assert np.all(np.isnan(out.data[1]))


@pytest.mark.parametrize(("rows", "n"), [(1, 1), (3, 64), (2, 1000), (4, 1024), (3, 3000)])
def test_add(rows: int, n: int, rng: np.random.Generator) -> None:
    driver = Driver(threads=2)
    a, b = (driver.register(rng.normal(size=(rows, n))) for _ in range(2))
    expected = a.data + b.data
    words = {**a.words("a"), **b.words("b"), "n": n, "rows": driver.count(rows)}
    out = driver.empty(rows, n)
    for target in (out, a):
        driver.run(("norm", "add"), ADD, {**words, **target.words("out")})
        assert np.array_equal(target.data, expected)
        target.check_padding()
