"""Signs times one column by tables of sums, where the processor looks up 64 bytes at once."""

from __future__ import annotations

import numpy as np
import pytest

from localllm import quant
from localllm.backends.cpu.kernel_cache import KernelId, kernels
from localllm.backends.cpu.layout import MANY
from tests.backends.cpu import matrices
from tests.backends.cpu.driver import Driver, jit

ONE_COLUMN: KernelId = ("matmul", "few", "Q1_0", 1)


def test_the_largest_sums_are_exact() -> None:
    """Four activations of 127 with one sign are the largest number that the two bytes of an entry have to hold."""
    driver, rng = Driver(), np.random.default_rng(9)
    signs = np.where(rng.random((64, 256)) < 0.5, -1.0, 1.0).astype(np.float32)
    signs[:4] = [[1.0], [-1.0], [1.0], [-1.0]]
    signs[2:4] *= np.resize([1.0, -1.0], 256).astype(np.float32)
    matrix = matrices.pack(driver, "Q1_0", quant.quantize(signs, "Q1_0"))
    np.testing.assert_array_equal(matrix.values, signs)
    for x in (np.ones((1, 256)), -np.ones((1, 256)), np.resize([1.0, -1.0], (1, 256)), signs[5:6]):
        found = matrices.multiply(driver, matrix, driver.register(x), 1).data
        np.testing.assert_allclose(found, x @ signs.T, rtol=0, atol=1e-4)


def test_tables_are_of_the_row_that_is_multiplied() -> None:
    driver, rng = Driver(threads=2), np.random.default_rng(10)
    matrix = matrices.pack(driver, "Q1_0", matrices.blocks("Q1_0", 300, 384))
    x = driver.register(rng.standard_normal((5, 384)))
    many, one = (matrices.multiply(driver, matrix, x, n).data for n in (MANY, 1))
    assert len(np.unique(one[:, 0])) == 5
    np.testing.assert_array_equal(one.view(np.int32), many.view(np.int32))


def test_processors_without_them_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    from localllm.backends.cpu.kernels import matmul

    driver, rng = Driver(), np.random.default_rng(11)
    matrix = matrices.pack(driver, "Q1_0", matrices.blocks("Q1_0", 77, 384))
    x = driver.register(rng.standard_normal((1, 384)))
    best = matrices.multiply(driver, matrix, x, 1).data
    monkeypatch.setattr(matmul, "BYTE_TABLES", False)
    monkeypatch.setitem(kernels()._addresses, ONE_COLUMN, jit(matmul.few("Q1_0", 1), "without_tables"))
    plain = matrices.multiply(driver, matrix, x, 1).data
    np.testing.assert_array_equal(best.view(np.int32), plain.view(np.int32))
