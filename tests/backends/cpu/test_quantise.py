"""Activations to bytes."""

from __future__ import annotations

import numpy as np
import pytest

from localllm.backends.cpu.arguments import GLU
from localllm.backends.cpu.arguments_matmul import GATED
from localllm.backends.cpu.layout import X_C8, X_C16, X_C32A, X_C32B, X_C128, X_STEP, X_SUM, X_SUM_A, activation_bytes
from localllm.backends.cpu.lower import COLUMNS
from tests.backends.cpu import matrices
from tests.backends.cpu.driver import Driver


def test_every_value_is_within_half_a_step() -> None:
    driver, rng = Driver(), np.random.default_rng(0)
    x = driver.register(rng.standard_normal((3, 256)) * np.exp(3 * rng.standard_normal((3, 256))))
    error = np.abs(matrices.rounded(driver, x) - x.data).reshape(3, 8, 32)
    largest = np.abs(x.data).reshape(3, 8, 32).max(-1, keepdims=True)
    assert (error <= largest / 254 * 1.0001).all()


def test_sums_beside_the_values() -> None:
    driver, rng = Driver(), np.random.default_rng(1)
    x = driver.register(rng.standard_normal((1, 64)))
    _, memory = matrices.quantise(driver, x, 1)
    for block in memory.reshape(2, 64):
        q = block[:32].view(np.int8).astype(int)
        ints = {at: int(block[at : at + 4].view(np.int32)[0]) for at in (X_C8, X_C16, X_C32A, X_C32B, X_C128)}
        total = q.sum()
        assert ints == {X_C8: -8 * total, X_C16: -16 * total, X_C32A: -32 * q[:16].sum(), X_C32B: -32 * q[16:].sum(), X_C128: -128 * total}
        sums = [block[at : at + 4].view(np.float32)[0] for at in (X_SUM, X_SUM_A)]
        assert sums[0] * q[:16].sum() == pytest.approx(sums[1] * total)


@pytest.mark.parametrize("n", COLUMNS)
def test_tiles_hold_the_same_as_single_columns(n: int) -> None:
    driver, rng = Driver(threads=2), np.random.default_rng(2)
    x = driver.register(rng.standard_normal((n + 1, 96)))
    single = matrices.quantise(driver, x, 1)[1].reshape(n + 1, -1)
    tiles = matrices.quantise(driver, x, n)[1].reshape(-(-(n + 1) // n), -1)
    for row in range(n + 1):
        words = tiles[row // n].view(np.int32).reshape(-1, n)[:, row % n]
        assert np.array_equal(words, single[row].view(np.int32)), row


@pytest.mark.parametrize(("value", "zero"), [(0.0, True), (1e-35, True), (np.nan, False), (np.inf, False), (-np.inf, False)])
def test_blocks_without_a_step(value: float, zero: bool) -> None:
    driver = Driver()
    x = driver.register(np.ones((1, 96), np.float32))
    x.data[0, 32:64] = 0
    x.data[0, 40] = value
    blocks = matrices.quantise(driver, x, 1)[1].reshape(3, 64)
    steps = blocks[:, X_STEP : X_STEP + 4].copy().view(np.float32)[:, 0]
    assert steps[[0, 2]] == pytest.approx(1 / 127)
    assert steps[1] == 0 if zero else np.isnan(steps[1])
    assert not blocks[1, :X_STEP].any()


def test_norm_on_the_way() -> None:
    driver, rng = Driver(), np.random.default_rng(3)
    x, normed = driver.register(rng.standard_normal((5, 96))), driver.empty(5, 96)
    weight = rng.standard_normal(96).astype(np.float32)
    _, memory = matrices.quantise(driver, x, 4, (driver.weight(weight), 1e-5, normed))
    exact = x.data / np.sqrt(np.mean(np.square(x.data, dtype=np.float64), -1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(normed.data, exact, rtol=2e-6, atol=1e-6)
    assert np.array_equal(memory, matrices.quantise(driver, normed, 4)[1])


@pytest.mark.parametrize("act", ["silu", "gelu"])
@pytest.mark.parametrize("n", COLUMNS)
def test_gated_units_on_the_way(act: str, n: int) -> None:
    driver, rng = Driver(threads=2), np.random.default_rng(4)
    gate, up, out = driver.register(rng.standard_normal((5, 1504))), driver.register(rng.standard_normal((5, 1504))), driver.empty(5, 1504)
    words = {**gate.words("gate"), **up.words("up"), "rows": driver.count(5)}
    driver.run(("glu", "glu", act), GLU, {**words, **out.words("out"), "n": 1504})
    apart = matrices.quantise(driver, out, n)[1]
    together = np.zeros_like(apart)
    fields = {"blocks": 1504 // 32, "out": together.ctypes.data, "out_bytes": activation_bytes(1504, n)}
    driver.run(("quantise", "gated", act, n), GATED, {**words, **fields})
    assert np.array_equal(together, apart)
