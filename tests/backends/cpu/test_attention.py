"""Attention: near float64, and the same bits however the rows are cut and whichever kernel computes them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from localllm.backends.cpu.arguments import few_scratch, many_scratch
from localllm.backends.cpu.records import PAGES
from tests.backends.cpu.attention import Line, Shape, call, few, many, same
from tests.backends.cpu.driver import Driver, line_words, partials, query_tiles

TYPES = [("f32", "f32"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("f16", "q4_0"), ("q8_0", "f16")]
CASES = [
    (Shape(4, 4, 64), 150),
    (Shape(7, 1, 64), 140),
    (Shape(14, 2, 64, 40), 150),
    (Shape(8, 2, 128), 270),
    (Shape(8, 8, 40), 66),
    (Shape(3, 1, 20, 5), 100),
    (Shape(5, 1, 80, 100), 300),
    (Shape(6, 3, 96, 64), 200),
    (Shape(4, 1, 256, 70), 140),
    (Shape(1, 1, 16, 1), 80),
    (Shape(2, 2, 100, 129), 330),
    (Shape(16, 1, 8, 63), 130),
    *[(Shape(14, 2, 64, 40, *types), 150) for types in TYPES],
    *[(Shape(3, 1, 20, 5, *types), 100) for types in TYPES],
    (Shape(8, 2, 128, 0, "q8_0", "q8_0"), 270),
    (Shape(8, 2, 128, 0, "q4_0", "q4_0"), 200),
    (Shape(1, 1, 80, 0, "q8_0", "q8_0"), 80),
]
IDS = [f"{shape}-{length}" for shape, length in CASES]


@pytest.mark.parametrize(("shape", "length"), CASES, ids=IDS)
def test_all_rows_at_once(shape: Shape, length: int, rng: np.random.Generator) -> None:
    line = Line.random(shape, length, rng, sharp=2)
    expected = line.expected()
    # Scores of about 2 with an error of 1e-6, averaged over values of about 1.
    np.testing.assert_allclose(many(Driver(threads=2), line, 0, length), expected, rtol=0, atol=4e-6)
    np.testing.assert_allclose(few(Driver(threads=2), line, range(length)), expected, rtol=0, atol=4e-6)


@pytest.mark.parametrize(("shape", "length"), CASES, ids=IDS)
def test_bits_do_not_depend_on_the_cut(shape: Shape, length: int, rng: np.random.Generator) -> None:
    line = Line.random(shape, length, rng, sharp=6)
    whole = many(Driver(), line, 0, length)
    assert not np.any(np.isnan(whole))
    assert same(few(Driver(threads=2), line, range(length)), whole)
    cuts = sorted({0, length, *rng.integers(1, length, 6).tolist(), 63, 64, 65})
    for start, end in pairwise(cuts):
        assert same(many(Driver(threads=2), line, start, end - start, layer=1), whole[start:end]), (start, end)
    for position in [0, 1, 15, 16, 62, 63, 64, length - 1, *rng.integers(0, length, 4).tolist()]:
        assert same(few(Driver(), line, [position], layer=1)[0], whole[position]), position
        assert same(many(Driver(), line, position, 1)[0], whole[position]), position


@pytest.mark.parametrize("types", [("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")])
@pytest.mark.parametrize("window", [0, 24])
def test_later_tokens_change_nothing(window: int, types: tuple[str, str], rng: np.random.Generator) -> None:
    """Not even infinite and undefined ones: neither those of the same batch nor what a truncated line has left in its pages."""
    line = Line.random(Shape(4, 2, 64, window, *types), 150, rng)
    whole = many(Driver(), line, 0, 150)
    for start in (3, 70, 127):
        spoilt = Line(line.shape, line.q.copy(), line.k.copy(), line.v.copy())
        spoilt.q[start + 1 :: 2], spoilt.k[start + 1 :: 2], spoilt.v[start + 1 :: 2] = np.inf, np.inf, np.nan
        spoilt.q[start + 2 :: 2], spoilt.k[start + 2 :: 2], spoilt.v[start + 2 :: 2] = np.nan, np.nan, -np.inf
        assert same(many(Driver(), spoilt, 0, 150)[: start + 1], whole[: start + 1])
        assert same(few(Driver(), spoilt, range(start + 1), written=150), whole[: start + 1])
        assert same(many(Driver(), spoilt, start, 1, written=150)[0], whole[start])


def test_what_the_window_has_left_changes_nothing(rng: np.random.Generator) -> None:
    line = Line.random(Shape(4, 2, 64, 24), 150, rng)
    whole = many(Driver(), line, 0, 150)
    for start in (40, 100, 127):
        spoilt = Line(line.shape, line.q.copy(), line.k.copy(), line.v.copy())
        spoilt.k[: start - 23], spoilt.v[: start - 23] = np.nan, np.inf
        assert same(many(Driver(), spoilt, start, 150 - start), whole[start:])
        assert same(few(Driver(), spoilt, range(start, 150)), whole[start:])


def test_tiny_products_keep_their_sign(rng: np.random.Generator) -> None:
    """Weights that vanish against values that are subnormal: sums of -0 must not become +0 in one kernel alone."""
    line = Line.random(Shape(2, 1, 32, 70), 200, rng, sharp=60)
    line.v[:] = (-np.abs(line.v) * np.float32(1e-7)).astype(np.float16)
    whole = many(Driver(), line, 0, 200)
    assert same(few(Driver(), line, range(200)), whole)
    for start in (0, 50, 101, 164):
        assert same(many(Driver(), line, start, 36), whole[start : start + 36])


def test_large_scores(rng: np.random.Generator) -> None:
    line = Line.random(Shape(2, 1, 64), 140, rng)
    line.q *= np.float32(1e4)
    whole = many(Driver(), line, 0, 140)
    np.testing.assert_allclose(whole, line.expected(), rtol=0, atol=0.02)  # all but one-hot: scores of 1e4 have an error of 1e-3
    assert same(few(Driver(), line, range(140)), whole)


def test_a_row_of_not_a_number_stays_alone(rng: np.random.Generator) -> None:
    line = Line.random(Shape(4, 2, 64), 80, rng)
    whole = many(Driver(), line, 0, 80)
    line.q[30, 1] = np.nan
    for result in (many(Driver(), line, 0, 80), few(Driver(), line, range(80))):
        assert np.all(np.isnan(result[30, 1]))
        mask = np.ones((80, 4), bool)
        mask[30, 1] = False
        assert same(result[mask], whole[mask])


@pytest.mark.parametrize("group", [1, 2, 3, 5, 8])
def test_the_group_that_a_kernel_is_made_for_changes_nothing(group: int, rng: np.random.Generator) -> None:
    line = Line.random(Shape(7, 1, 48, 50), 90, rng)
    assert same(few(Driver(), line, range(90), group=group), few(Driver(), line, range(90)))


def test_rows_of_two_lines(rng: np.random.Generator) -> None:
    """Rows of several lines in one batch, apart or interleaved, are what they are alone."""
    shape, driver = Shape(4, 2, 32, 40), Driver(threads=2)
    lines = [Line.random(shape, length, rng) for length in (100, 30)]
    caches = [shape.cache(driver, len(line.q)) for line in lines]
    for line, cache in zip(lines, caches, strict=True):
        cache.put(0, line.k, line.v)
    alone = np.concatenate([many(Driver(), line, 0, len(line.q)) for line in lines])
    both = Line(shape, np.concatenate([line.q for line in lines]), lines[0].k, lines[0].v)

    tiles = query_tiles(driver, [(0, 100, 0, caches[0]), (100, 30, 0, caches[1])])
    scratch = {"scratch": max(many_scratch(4, 2, 32), few_scratch(4, 2, 32))}
    result = call(driver, both, range(130), caches[0], 0, [("attention_many", "attend_many")], words=tiles, **scratch)
    assert same(result, alone)

    rows = [99, 100, 98, 129, 5, 107]
    where = [(caches[row // 100], row % 100) for row in rows]
    words = line_words(driver, caches[0], [position for _, position in where]) | partials(driver, len(rows), 4, 32, 2)
    words[PAGES] = driver.address([cache.table for cache, _ in where], np.int64)
    kernels = [("attention_few", "attend_few", 2), ("attention_few", "merge_few")]
    assert same(call(driver, both, rows, caches[0], 0, kernels, words=words, **scratch), alone[rows])
