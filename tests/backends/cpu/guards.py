"""Kernels of every family on memory between pages that can't be touched: ``python -m tests.backends.cpu.guards FAMILY``, a process of its
own, because an access outside ends it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from localllm.backends.cpu.arguments import ADD, GLU
from localllm.backends.cpu.layout import FLOATS, LAYOUTS
from localllm.backends.cpu.lower import COLUMNS
from localllm.quant.base import by_name
from tests.backends.cpu import matrices
from tests.backends.cpu.attention import Line, Shape, few, many
from tests.backends.cpu.driver import Driver
from tests.backends.cpu.test_choose import likeliest
from tests.backends.cpu.test_moe import route
from tests.backends.cpu.test_norm import rms_norm
from tests.backends.cpu.test_rope import CASES, QUANTISED

Family = Callable[[Driver, np.random.Generator], None]


def norm(driver: Driver, rng: np.random.Generator) -> None:
    """Norm and addition."""
    for rows, n in ((1, 1), (8, 64), (3, 100)):
        a, b = (driver.register(rng.normal(size=(rows, n))) for _ in range(2))
        rms_norm(driver, a, np.ones(n, np.float32), 1e-6)
        words = {**a.words("a"), **b.words("b"), **driver.empty(rows, n).words("out")}
        driver.run(("norm", "add"), ADD, {**words, "n": n, "rows": driver.count(rows)})


def glu(driver: Driver, rng: np.random.Generator) -> None:
    """Gated units."""
    for rows, n in ((1, 1), (8, 1024), (3, 1100)):
        gate, up = (driver.register(rng.normal(size=(rows, n))) for _ in range(2))
        words = {**gate.words("gate"), **up.words("up"), **driver.empty(rows, n).words("out")}
        for act in ("silu", "gelu"):
            driver.run(("glu", "glu", act), GLU, {**words, "n": n, "rows": driver.count(rows)})


def choose(driver: Driver, rng: np.random.Generator) -> None:
    """The likeliest tokens."""
    for rows, n in ((1, 1), (3, 64), (2, 301)):
        likeliest(rng.normal(size=(rows, n)).astype(np.float32), min(n, 40), 40, driver)


def rope(driver: Driver, rng: np.random.Generator) -> None:
    """Rotation and the cache."""
    for case in CASES + QUANTISED:
        case.run(driver, rng)


_SHAPES = [(Shape(2, 1, 16, 5), 70), (Shape(3, 3, 20), 65), (Shape(7, 1, 64, 64), 130), (Shape(1, 1, 72), 9), (Shape(8, 1, 8), 64)]
_SHAPES += [(Shape(7, 1, 64, 64, *types), 70) for types in (("q8_0", "q8_0"), ("q4_0", "q4_0"), ("f32", "q8_0"), ("q8_0", "f16"))]


def attention_few(driver: Driver, rng: np.random.Generator) -> None:
    """Attention over few rows."""
    for shape, length in _SHAPES:
        line = Line.random(shape, length, rng)
        few(driver, line, range(length))
        few(driver, line, [length - 1])


def attention_many(driver: Driver, rng: np.random.Generator) -> None:
    """Attention over many rows."""
    for shape, length in _SHAPES:
        line = Line.random(shape, length, rng)
        many(driver, line, 0, length)
        many(driver, line, length - 1, 1)
        many(driver, line, length - 8, 8)


def moe(driver: Driver, rng: np.random.Generator) -> None:
    """Routing."""
    for experts, used in ((1, 1), (8, 2), (60, 4)):
        route(driver, rng.normal(size=(5, experts)).astype(np.float32), used)


def matrix(driver: Driver, rng: np.random.Generator) -> None:
    """Packing, embedding, quantising and products of every format."""
    for kind in (*FLOATS, *LAYOUTS):
        columns = {1: 37, 32: 96, 64: 192, 128: 384}.get(by_name(kind).block_size, 256)
        for rows in (1, 17, 77):
            packed = matrices.pack(driver, kind, matrices.blocks(kind, rows, columns))
            matrices.embed(driver, packed, list(range(rows)))
            for count in (1, 9):
                x = driver.register(rng.normal(size=(count, columns)))
                for n in COLUMNS:
                    matrices.multiply(driver, packed, x, n)


FAMILIES: dict[str, Family] = {f.__name__: f for f in (norm, glu, rope, attention_few, attention_many, moe, choose, matrix)}


def main(family: str) -> None:
    """Runs a family with memory that ends, and with memory that begins, at such a page."""
    from functools import partial

    from tests.backends.cpu.driver import guarded

    for at_end in (True, False):
        FAMILIES[family](Driver(partial(guarded, at_end=at_end)), np.random.default_rng(7))
    print("inside")


if __name__ == "__main__":
    main(sys.argv[1])
