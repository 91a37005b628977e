"""exp and the activations, on vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from localllm.backends.cpu.arguments import GLU
from localllm.backends.cpu.target import current
from tests.backends.cpu.driver import Driver, call_words, jit

Floats = NDArray[np.float32]
Function = Callable[[Floats], Floats]


def _of_array(name: str) -> Function:
    from localllm.backends.cpu.kernels import maths
    from localllm.backends.cpu.kernels.vec import ld_f, st_f

    function = getattr(maths, name)

    def run(x: int, out: int, n: int, thread: int) -> None:
        for i in range(0, 4 * n, 64):
            st_f(out + i, function(ld_f(x + i)))

    entry = jit(run, f"{name}_of_array")

    def apply(x: Floats) -> Floats:
        padded = np.zeros(-(-len(x) // 16) * 16, np.float32)
        padded[: len(x)] = x
        out = np.empty_like(padded)
        call_words(entry, padded.ctypes.data, out.ctypes.data, len(padded))
        return out[: len(x)]

    return apply


@pytest.fixture(scope="module")
def exp() -> Function:
    """vexp of an array."""
    return _of_array("vexp")


@pytest.fixture(scope="module")
def decay() -> Function:
    """decay of an array."""
    return _of_array("decay")


def test_decay_is_accurate_beside_one(decay: Function) -> None:
    x = np.concatenate([np.linspace(-100, 0, 400_001), np.linspace(-1, 0, 200_001), -np.logspace(-40, 0, 4001)]).astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    assert np.max(np.abs(decay(x) - expected)) < 2e-7
    seen = x > -87
    # Without fused products x / ln 2, up to 126, is rounded before its integer part goes: by 4e-6 at most.
    assert np.max(np.abs(decay(x) / expected - 1)[seen]) < (2e-6 if current().fma else 5e-6)


def test_decay_of_special_values(decay: Function) -> None:
    x = np.array([0, -0.0, -87.8, -88, -104, -1e30, -np.inf, np.nan, -np.nan], np.float32)
    np.testing.assert_array_equal(decay(x), np.array([1, 1, 0, 0, 0, 0, 0, np.nan, np.nan], np.float32))
    assert not np.any(np.signbit(decay(x[:7])))


def test_exp_is_accurate(exp: Function) -> None:
    x = np.concatenate([np.linspace(-87.3, 88.3, 400_001), np.linspace(-1, 1, 200_001), -np.logspace(-40, 0, 4001)]).astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    assert np.max(np.abs(exp(x) / expected - 1)) < 2e-7


def test_exp_of_special_values(exp: Function) -> None:
    x = np.array([0, -0.0, -87.31, -88, -104, -1e30, -np.inf, 88.5, 89, 1e30, np.inf, np.nan, -np.nan], np.float32)
    expected = np.array([1, 1, 0, 0, 0, 0, 0, *[np.inf] * 4, np.nan, np.nan], np.float32)
    np.testing.assert_array_equal(exp(x), expected)
    assert not np.any(np.signbit(exp(x[:11])))


def test_exp_of_a_lane_does_not_depend_on_the_others(exp: Function, rng: np.random.Generator) -> None:
    x = rng.uniform(-90, 0, 16).astype(np.float32)
    apart = np.concatenate([exp(np.full(16, value, np.float32))[:1] for value in x])
    assert np.array_equal(exp(x), apart)


def silu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """In float64."""
    return np.asarray(x / (1 + np.exp(-x)))


def gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """In float64, the tanh form."""
    return np.asarray(x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


@pytest.mark.parametrize("act", ["silu", "gelu"])
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (3, 64), (2, 1000), (2, 4864), (9, 100)])
def test_glu(act: str, rows: int, n: int, rng: np.random.Generator) -> None:
    driver = Driver(threads=2)
    gate, up = (driver.register(rng.normal(0, 4, (rows, n))) for _ in range(2))
    wide = gate.data.astype(np.float64)
    activated = silu(wide) if act == "silu" else gelu(wide)
    expected = activated * up.data
    words = {**gate.words("gate"), **up.words("up"), "n": n, "rows": driver.count(rows)}
    # Relative to |gate * up|: where act is nearly 0 its own relative error grows with the exponent's.
    scale = np.abs(wide * up.data) + 1e-30
    for target in (driver.empty(rows, n), gate):
        driver.run(("glu", "glu", act), GLU, {**words, **target.words("out")})
        assert np.max(np.abs(target.data - expected) / scale) < 5e-7
        target.check_padding()


@pytest.mark.parametrize("act", ["silu", "gelu"])
def test_glu_far_from_zero(act: str) -> None:
    driver = Driver()
    gate = driver.register([[-1e20, -200, -90, -0.0, 0, 90, 200, 1e20, np.nan]])
    up, out = driver.register(np.ones((1, 9))), driver.empty(1, 9)
    words = {**gate.words("gate"), **up.words("up"), **out.words("out"), "n": 9, "rows": driver.count(1)}
    driver.run(("glu", "glu", act), GLU, words)
    np.testing.assert_array_equal(out.data[0], np.array([0, 0, 0, 0, 0, 90, 200, 1e20, np.nan], np.float32))
