"""Packing, embedding and matrix products of every storage format."""

from __future__ import annotations

import numpy as np
import pytest

from localllm import quant
from localllm.backends.cpu.layout import FLOATS, LAYOUTS, MANY, padded
from localllm.backends.cpu.lower import COLUMNS
from localllm.backends.cpu.weights import layout_of
from tests.backends.cpu import matrices
from tests.backends.cpu.driver import Driver

OWN = [*(name for name in LAYOUTS if not name.startswith("X8")), "Q2_K", "IQ2_XS"]
"""One format for every layout."""
SUM = 3e-6
"""Relative error of sums of a few thousand float32 terms."""


def columns_of(kind: str) -> int:
    """A width that the format allows, no multiple of 256 where it can be avoided."""
    block = quant.base.by_name(kind).block_size
    return 608 if block == 32 else 100 if block == 1 else 3 * 256


@pytest.mark.parametrize("kind", quant.NAMES)
@pytest.mark.parametrize("rows", [1, 77])
def test_packed_rows_are_the_files(kind: str, rows: int) -> None:
    driver = Driver()
    matrix = matrices.pack(driver, kind, matrices.blocks(kind, rows, columns_of(kind)))
    found = matrices.embed(driver, matrix, list(range(rows)))
    # a scale and a minimum may be rounded apart: one unit of the sum
    np.testing.assert_allclose(found, matrix.values, rtol=1e-6, atol=1e-6 * np.abs(matrix.values).max())


@pytest.mark.parametrize("kind", OWN)
def test_products(kind: str) -> None:
    driver, rng = Driver(threads=2), np.random.default_rng(3)
    matrix = matrices.pack(driver, kind, matrices.blocks(kind, 77, columns_of(kind)))
    x = driver.register(rng.standard_normal((19, matrix.columns)) * np.exp(rng.standard_normal((19, matrix.columns))))
    init = driver.register(rng.standard_normal((24, padded(77))) * (np.arange(padded(77)) < 77))
    exact = matrices.rounded(driver, x) @ matrix.values.astype(np.float64).T + init.data[:19, :77]
    found = {n: matrices.multiply(driver, matrix, x, n, init) for n in COLUMNS}
    scale = np.abs(exact).max()
    assert np.abs(found[1].data - exact).max() <= SUM * scale
    for n, y in found.items():
        assert np.array_equal(y.data.view(np.int32), found[1].data.view(np.int32)), n
        assert not y.all[:19, 77:].any(), n


@pytest.mark.parametrize("kind", sorted(FLOATS))
def test_float_products(kind: str) -> None:
    driver, rng = Driver(threads=2), np.random.default_rng(4)
    matrix = matrices.pack(driver, kind, matrices.blocks(kind, 77, 100))
    x = driver.register(rng.standard_normal((19, 100)))
    found = [matrices.multiply(driver, matrix, x, n).data for n in (1, 4, 8)]
    exact = x.data.astype(np.float64) @ matrix.values.astype(np.float64).T
    assert np.abs(found[0] - exact).max() <= SUM * np.abs(exact).max()
    assert all(np.array_equal(y.view(np.int32), found[0].view(np.int32)) for y in found)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    driver, rng = Driver(), np.random.default_rng(5)
    matrix = matrices.pack(driver, "Q4_K", matrices.blocks("Q4_K", 64, 512))
    x = rng.standard_normal((9, 512)).astype(np.float32)
    poisoned = x.copy()
    poisoned[1:] = [np.nan, np.inf] * 256
    alone = matrices.multiply(driver, matrix, driver.register(x), MANY).data
    beside = matrices.multiply(driver, matrix, driver.register(poisoned), MANY).data
    assert np.array_equal(alone[0], beside[0])
    assert np.isnan(beside[1:]).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_spans_of_groups_are_all_done(threads: int) -> None:
    rng = np.random.default_rng(6)
    for groups in (1, 2, 5, 40):
        driver = Driver(threads=threads)
        matrix = matrices.pack(driver, "Q8_0", matrices.blocks("Q8_0", 64 * groups, 64))
        x = driver.register(rng.standard_normal((1, 64)))
        exact = matrices.rounded(driver, x) @ matrix.values.astype(np.float64).T
        np.testing.assert_allclose(matrices.multiply(driver, matrix, x, 1).data, exact, atol=SUM * np.abs(exact).max())


def test_every_format_has_a_layout() -> None:
    assert {layout_of(kind) for kind in quant.NAMES} == {*LAYOUTS, *FLOATS}
