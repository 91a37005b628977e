"""Each operation of the reference backend: by hand, and against loops over single numbers in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from localllm.backends.base import Float
from localllm.backends.reference import ops
from localllm.model.program import Attend

Random = Callable[..., Float]


def f32(values: Any) -> Float:
    return np.array(values, np.float32)


@pytest.fixture
def random() -> Random:
    rng = np.random.default_rng(5)
    return lambda *shape: rng.standard_normal(shape, np.float32)


def test_rms_norm() -> None:
    found = ops.rms_norm(f32([[3, 4]]), f32([2, 10]), 0.0)
    root = math.sqrt(12.5)
    np.testing.assert_allclose(found, [[6 / root, 40 / root]], rtol=1e-6)
    assert ops.rms_norm(f32([[0, 0]]), f32([1, 1]), 1e-6).tolist() == [[0, 0]]


def test_activations() -> None:
    x = f32([-200, -1, 0, 1, 2, 200])
    np.testing.assert_allclose(ops.activate(x, "silu"), [0, -0.26894143, 0, 0.7310586, 1.7615942, 200], atol=1e-7)
    np.testing.assert_allclose(ops.activate(x, "gelu"), [0, -0.15880796, 0, 0.841192, 1.9545977, 200], atol=1e-6)


def test_softmax() -> None:
    np.testing.assert_allclose(ops.softmax(f32([[0, math.log(3)]])), [[0.25, 0.75]], rtol=1e-6)
    assert ops.softmax(f32([[1e4, 0, -np.inf]])).tolist() == [[1, 0, 0]]


def test_rotate_pairs() -> None:
    x = f32([[[1, 2, 3, 4, 5]]])
    turn = f32([[0, 1, 1, 0]])  # the first pair by 90 degrees, the second not at all; the fifth value is not turned
    assert ops.rotate(x, turn, "norm").tolist() == [[[-2, 1, 3, 4, 5]]]
    assert ops.rotate(x, turn, "neox").tolist() == [[[-3, 2, 1, 4, 5]]]
    assert x.tolist() == [[[1, 2, 3, 4, 5]]]


def attend(heads: int, kv_heads: int, dim: int, window: int = 0) -> Attend:
    return Attend("q", "k", "v", "out", 0, heads, kv_heads, dim, 0.37, None, window)


@pytest.mark.parametrize("window", [0, 1, 3, 100])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "first", "count"), [(1, 1, 4, 0, 5), (6, 2, 3, 4, 3), (4, 4, 2, 7, 1), (3, 1, 5, 0, 0)]
)
def test_attention(random: Random, heads: int, kv_heads: int, dim: int, first: int, count: int, window: int) -> None:
    q, keys, values = random(count, heads, dim), random(first + count, kv_heads * dim), random(first + count, kv_heads * dim)
    found = ops.attention(q, keys, values, first, attend(heads, kv_heads, dim, window))
    assert found.shape == (count, heads * dim) and found.dtype == np.float32
    for t in range(count):
        for h in range(heads):
            part = slice(h // (heads // kv_heads) * dim, (h // (heads // kv_heads) + 1) * dim)
            seen = range(max(0, first + t - window + 1) if window else 0, first + t + 1)
            powers = [math.exp(0.37 * float(np.dot(q[t, h].astype(float), keys[j, part]))) for j in seen]
            expected = sum(p * values[j, part].astype(float) for p, j in zip(powers, seen, strict=True)) / sum(powers)
            np.testing.assert_allclose(found[t, h * dim : (h + 1) * dim], expected, rtol=1e-5, atol=1e-6)


def test_cache_grows_and_overwrites() -> None:
    cache = ops.Cache(2, 2, ("f32", "f32"))
    cache.put(0, np.ones((3, 2), np.float32), np.full((3, 2), 2, np.float32))
    copy = cache.copy(2)
    keys, values = cache.put(2, np.zeros((200, 2), np.float32), np.full((200, 2), 7, np.float32))
    assert keys.shape == values.shape == (202, 2)
    assert keys[:2].min() == 1 and keys[2:].max() == 0 and values[1, 0] == 2 and values[201, 1] == 7
    assert copy.put(2, np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32))[0].tolist() == [[1, 1], [1, 1]]


def test_unknown_operation() -> None:
    with pytest.raises(AssertionError, match="operation str"):
        ops.run("x", None)  # type: ignore[arg-type]
