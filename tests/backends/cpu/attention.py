"""Attention through its kernels, over few rows and over many, and the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.arguments import ATTEND, few_scratch, many_scratch
from localllm.backends.cpu.records import TILE
from tests.backends.cpu.driver import Cache, Driver, line_words, partials, query_tiles

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Heads and the window."""

    heads: int
    kv_heads: int
    d: int
    window: int = 0

    def __str__(self) -> str:
        return f"{self.heads}x{self.kv_heads}x{self.d}-{self.window}"


@dataclass
class Line:
    """Queries (scaled), keys and values of all positions of a line: (positions, heads, d)."""

    shape: Shape
    q: Floats
    k: NDArray[np.float16]
    v: NDArray[np.float16]

    @classmethod
    def random(cls, shape: Shape, length: int, rng: np.random.Generator, sharp: float = 1.0) -> Line:
        """``sharp``: how far the scores spread."""
        q = rng.normal(0, sharp / np.sqrt(shape.d), (length, shape.heads, shape.d)).astype(np.float32)
        k, v = (rng.normal(size=(length, shape.kv_heads, shape.d)).astype(np.float16) for _ in range(2))
        return cls(shape, q, k, v)

    def expected(self) -> NDArray[np.float64]:
        """Attention in float64."""
        shape = self.shape
        q = self.q.astype(np.float64)
        k, v = (np.repeat(x.astype(np.float64), shape.heads // shape.kv_heads, axis=1) for x in (self.k, self.v))
        scores = np.einsum("qhd,khd->hqk", q, k)
        i, j = np.arange(len(q))[:, None], np.arange(len(q))[None]
        scores = np.where((j <= i) & ((j > i - shape.window) | (shape.window == 0)), scores, -np.inf)
        p = np.exp(scores - scores.max(axis=2, keepdims=True))
        return np.asarray(np.einsum("hqk,khd->qhd", p / p.sum(axis=2, keepdims=True), v))


def call(driver: Driver, line: Line, rows: Sequence[int], cache: Cache, layer: int, kernels: Sequence[Any], **state: Any) -> Floats:
    """Attention for some of the line's queries, with kernels that find everything else in the state."""
    shape = line.shape
    q = driver.register(line.q[list(rows)].reshape(len(rows), -1))
    out = driver.empty(*q.data.shape)
    words = {"heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.d, "window": shape.window}
    words |= {**cache.place(layer), "rows": driver.count(len(rows))}
    words |= {**q.words("q"), **out.words("out")}
    for kernel in kernels:
        driver.run(kernel, ATTEND, words, driver.state(**state))
    out.check_padding()
    return out.data.reshape(len(rows), shape.heads, shape.d)


def few(driver: Driver, line: Line, positions: Sequence[int], written: int | None = None, layer: int = 0, group: int = 0) -> Floats:
    """attend_few and merge_few for rows at these positions; the cache holds the first ``written`` positions (default: what is needed).

    ``group``: what the kernel is compiled for (default: the number it is made for).
    """
    shape, end = line.shape, max(positions) + 1
    written = end if written is None else written
    cache = Cache(driver, max(written, end), shape.kv_heads, shape.d, layers=layer + 1)
    cache.put(0, line.k[:written], line.v[:written], layer)
    words = line_words(driver, cache, positions) | partials(driver, len(positions), shape.heads, shape.d, -(-end // TILE))
    scratch = few_scratch(shape.heads, shape.kv_heads, shape.d)
    kernels = [("attention_few", "attend_few", group or shape.heads // shape.kv_heads), ("attention_few", "merge_few")]
    return call(driver, line, positions, cache, layer, kernels, words=words, scratch=scratch)


def many(driver: Driver, line: Line, first: int, n: int, written: int | None = None, layer: int = 0) -> Floats:
    """attend_many for the rows first..first+n-1; the cache holds the first ``written`` positions (default: what is needed)."""
    shape, end = line.shape, first + n
    written = end if written is None else written
    cache = Cache(driver, written, shape.kv_heads, shape.d, layers=layer + 1)
    cache.put(0, line.k[:written], line.v[:written], layer)
    words = line_words(driver, cache, range(first, end)) | query_tiles(driver, [(0, n, first, cache)])
    scratch = many_scratch(shape.heads, shape.kv_heads, shape.d)
    return call(driver, line, range(first, end), cache, layer, [("attention_many", "attend_many")], words=words, scratch=scratch)


def same(a: Floats, b: Floats) -> bool:
    """Whether the bits are equal."""
    return np.array_equal(np.ascontiguousarray(a).view(np.int32), np.ascontiguousarray(b).view(np.int32))
