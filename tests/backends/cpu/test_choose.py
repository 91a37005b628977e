"""The likeliest tokens of a row."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from localllm.backends.cpu.arguments import LIKELIEST
from localllm.backends.cpu.records import ASKED, WANTED
from tests.backends.cpu.driver import Driver


def likeliest(
    logits: NDArray[np.float32], k: int, most: int = 64, driver: Driver | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(logits, ids) that the kernel leaves, every row's; what it does not write stays NaN and -1."""
    driver = driver or Driver(threads=2)
    x, rows = driver.register(logits), len(logits)
    found, ids = driver.array(np.full((rows, most), np.nan), np.float32), driver.array(np.full((rows, most), -1), np.int64)
    words = {**x.words("x"), "n": logits.shape[1], "most": most, "logits": found.ctypes.data, "ids": ids.ctypes.data}
    state = driver.state()
    state[ASKED], state[WANTED] = k, rows
    driver.run(("choose", "likeliest"), LIKELIEST, words, state)
    return found, ids


def ranked(logits: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    return np.argsort(-logits, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("size", [1, 5, 40, 63, 64, 65, 129, 1000, 20011])
@pytest.mark.parametrize("k", [1, 2, 40, 64])
def test_equals_a_stable_sort(size: int, k: int, rng: np.random.Generator) -> None:
    k = min(k, size)
    for spread in (0.5, 4):  # many ties, and few
        logits = np.round(rng.normal(0, spread, (3, size)) * 4).astype(np.float32)
        found, ids = likeliest(logits, k)
        assert np.array_equal(ids[:, :k], ranked(logits, k))
        assert np.array_equal(found[:, :k], np.take_along_axis(logits, ids[:, :k], 1))
        assert np.all(ids[:, k:] == -1)


@pytest.mark.parametrize("order", [1, -1])
def test_rising_and_falling(order: int) -> None:
    logits = order * np.arange(5000, dtype=np.float32)[None]
    _, ids = likeliest(logits, 40)
    assert np.array_equal(ids[:, :40], ranked(logits, 40))


def test_nothing_is_asked_for() -> None:
    found, ids = likeliest(np.ones((2, 100), np.float32), 0)
    assert np.all(np.isnan(found)) and np.all(ids == -1)


def test_all_infinitely_unlikely() -> None:
    logits = np.full((1, 100), -np.inf, np.float32)
    logits[0, 70] = -5
    found, ids = likeliest(logits, 3)
    assert ids[0, :3].tolist() == [70, 0, 1] and found[0, :3].tolist() == [-5, -np.inf, -np.inf]


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("place", [0, 2, 50, 99, 299])
def test_what_is_no_number_comes_first(k: int, place: int) -> None:
    logits = np.arange(300, dtype=np.float32)[None]
    logits[0, place] = np.nan
    found, ids = likeliest(logits, k)
    assert np.isnan(found[0, 0]) and ids[0, 0] == place
