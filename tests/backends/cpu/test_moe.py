"""Routing to experts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from localllm.backends.cpu.arguments import ROUTE, route_scratch
from tests.backends.cpu.driver import Driver


def route(driver: Driver, logits: NDArray[np.float32], used: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(ids, weights) of every row, best first."""
    rows, experts = logits.shape
    x = driver.register(logits)
    ids, weights = driver.array(np.full((rows, used), -1), np.int64), driver.array(np.full((rows, used), np.nan), np.float32)
    words = {**x.words("x"), "experts": experts, "used": used, "ids": ids.ctypes.data, "weights": weights.ctypes.data}
    driver.run(("moe", "route"), ROUTE, {**words, "rows": driver.count(rows)}, driver.state(scratch=route_scratch(experts)))
    return ids, weights


@pytest.mark.parametrize(("rows", "experts", "used"), [(1, 4, 2), (9, 8, 2), (3, 16, 1), (5, 60, 4), (4, 128, 8), (2, 3, 3)])
def test_route(rows: int, experts: int, used: int, rng: np.random.Generator) -> None:
    logits = rng.normal(0, 2, (rows, experts)).astype(np.float32)
    ids, weights = route(Driver(threads=2), logits, used)
    wide = np.exp(logits.astype(np.float64))
    order = np.argsort(-wide, axis=1, kind="stable")[:, :used]
    chosen = np.take_along_axis(wide, order, axis=1)
    assert np.array_equal(ids, order)
    np.testing.assert_allclose(weights, chosen / chosen.sum(axis=1, keepdims=True), rtol=1e-6)


def test_ties_go_to_the_lowest_number() -> None:
    logits = np.zeros((3, 20), np.float32)
    logits[1, [3, 17]] = 1
    logits[2, 19] = -200
    ids, weights = route(Driver(), logits, 3)
    assert ids.tolist() == [[0, 1, 2], [3, 17, 0], [0, 1, 2]]
    np.testing.assert_allclose(weights[0], 1 / 3, rtol=1e-6)


def test_far_apart_and_not_a_number() -> None:
    logits = np.array([[-1e30, 5, -1e30, -1e30], [np.nan, 1, 2, 3], [-np.inf, 0, -np.inf, -np.inf]], np.float32)
    ids, weights = route(Driver(), logits, 3)
    assert ids.tolist() == [[1, 0, 2], [0, 1, 2], [1, 0, 2]]
    assert weights[0].tolist() == [1, 0, 0] and weights[2].tolist() == [1, 0, 0]
    assert np.all(np.isnan(weights[1]))
