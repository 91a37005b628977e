"""Packing, embedding and matrix products of every storage format."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from localllm import quant
from localllm.backends.cpu.layout import FLOATS, LAYOUTS, MANY, SPAN, padded
from localllm.backends.cpu.lower import COLUMNS
from localllm.backends.cpu.target import available, current
from tests.backends.cpu import matrices
from tests.backends.cpu.driver import Driver

SUM = 3e-6
"""Relative error of sums of a few thousand float32 terms."""


def columns_of(kind: str) -> int:
    """A width that the format allows, no multiple of 256 where it can be avoided."""
    block = quant.base.by_name(kind).block_size
    return {1: 100, 32: 608, 64: 576, 128: 384}.get(block, 3 * 256)


def columns_of_tests(kind: str) -> tuple[int, ...]:
    """All column tiles; on another target than the machine's best, where compiling them would take minutes, all for one format of each
    way to multiply and the first and the last for the others."""
    whole = current().name == available()[0] or kind in ("Q4_0", "Q5_1", "Q8_0", "Q6_K", "Q2_K", "IQ4_XS")
    return COLUMNS if whole else (1, MANY)


@pytest.mark.parametrize("kind", quant.NAMES)
@pytest.mark.parametrize("rows", [1, 77])
def test_packed_rows_are_the_files(kind: str, rows: int) -> None:
    driver = Driver()
    matrix = matrices.pack(driver, kind, matrices.blocks(kind, rows, columns_of(kind)))
    found = matrices.embed(driver, matrix, list(range(rows)))
    if kind in LAYOUTS and LAYOUTS[kind].mins:  # a scale and a minimum may be rounded apart: one unit of the sum
        np.testing.assert_allclose(found, matrix.values, rtol=1e-6, atol=1e-6 * np.abs(matrix.values).max())
    else:
        np.testing.assert_array_equal(found, matrix.values)


def noise(kind: str, rows: int, columns: int) -> NDArray[np.uint8]:
    """Random bytes: every code and every kind of scale, but for float16 that are 2 and more, infinite or NaN."""
    block = quant.format(kind).block
    raw = np.random.default_rng(8).integers(0, 256, (rows, columns // quant.lookup(kind).block_size * block.itemsize), np.uint8)
    blocks = raw.view(block)
    for name in block.names or ():
        if block[name] == np.float16:
            blocks[name] = (blocks[name].view(np.uint16) & 0xBFFF).view(np.float16)
    if kind == "IQ1_M":
        blocks["scales"] &= np.array([0xFFFF, 0xFFFF, 0xFFFF, 0xBFFF], np.uint16)
    if kind == "MXFP4":
        blocks["e"][:, :3] = 0, 1, 255
    if kind == "NVFP4":
        blocks["d"][:, 0] = 0x00, 0x07, 0x7F, 0xFF
    return raw


@pytest.mark.parametrize("kind", LAYOUTS)
def test_every_code_and_every_scale_is_packed(kind: str) -> None:
    driver = Driver()
    matrix = matrices.pack(driver, kind, noise(kind, 50, columns_of(kind)))
    found = matrices.embed(driver, matrix, list(range(50)))
    np.testing.assert_allclose(found, matrix.values, rtol=0, atol=1e-6 * np.abs(matrix.values).max() if LAYOUTS[kind].mins else 0)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_products(kind: str) -> None:
    driver, rng = Driver(threads=2), np.random.default_rng(3)
    matrix = matrices.pack(driver, kind, matrices.blocks(kind, 77, columns_of(kind)))
    x = driver.register(rng.standard_normal((19, matrix.columns)) * np.exp(rng.standard_normal((19, matrix.columns))))
    init = driver.register(rng.standard_normal((24, padded(77))) * (np.arange(padded(77)) < 77))
    exact = matrices.rounded(driver, x) @ matrix.values.astype(np.float64).T + init.data[:19, :77]
    found = {n: matrices.multiply(driver, matrix, x, n, init) for n in columns_of_tests(kind)}
    scale = np.abs(exact).max()
    assert np.abs(found[1].data - exact).max() <= SUM * scale
    for n, y in found.items():
        assert np.array_equal(y.data.view(np.int32), found[1].data.view(np.int32)), n
        assert not y.all[:19, 77:].any(), n


@pytest.mark.parametrize("kind", sorted(FLOATS))
@pytest.mark.parametrize("columns", [100, 2 * SPAN, 2 * SPAN + 7])
def test_float_products(kind: str, columns: int) -> None:
    driver, rng = Driver(threads=2), np.random.default_rng(4)
    matrix = matrices.pack(driver, kind, matrices.blocks(kind, 77, columns))
    x = driver.register(rng.standard_normal((133, columns)))
    init = driver.register(rng.standard_normal((136, padded(77))) * (np.arange(padded(77)) < 77))
    found = {n: matrices.multiply(driver, matrix, x, n, init) for n in COLUMNS}
    exact = x.data.astype(np.float64) @ matrix.values.astype(np.float64).T + init.data[:133, :77]
    assert np.abs(found[1].data - exact).max() <= SUM * np.abs(exact).max()
    for n, y in found.items():
        assert np.array_equal(y.data.view(np.int32), found[1].data.view(np.int32)), n
        assert not y.all[:133, 77:].any(), n


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
    assert {*quant.NAMES} == {*LAYOUTS, *FLOATS}
