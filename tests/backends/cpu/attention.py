"""Attention through its kernels, over few rows and over many, and the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.arguments import ATTEND, few_scratch, many_scratch
from localllm.backends.cpu.kv_types import QUANTISED, HeadLayout
from localllm.backends.cpu.records import TILE
from tests.backends.cpu.driver import Cache, Driver, line_words, partials, query_tiles
from tests.backends.cpu.kv import kept, queries, query_slots

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Heads, the window, and what keys and values are kept as."""

    heads: int
    kv_heads: int
    d: int
    window: int = 0
    k: str = "f16"
    v: str = "f16"

    def __str__(self) -> str:
        return f"{self.heads}x{self.kv_heads}x{self.d}-{self.window}-{self.k}-{self.v}"

    @property
    def wide(self) -> int:
        """What heads are padded to."""
        return HeadLayout(self.k, self.v, self.d).wide

    def cache(self, driver: Driver, length: int, layers: int = 1) -> Cache:
        """Pages for so many positions."""
        return Cache(driver, length, self.kv_heads, self.d, layers, self.k, self.v)


@dataclass
class Line:
    """Queries (scaled), keys and values of all positions of a line: (positions, heads, d)."""

    shape: Shape
    q: Floats
    k: Floats
    v: Floats

    @classmethod
    def random(cls, shape: Shape, length: int, rng: np.random.Generator, sharp: float = 1.0) -> Line:
        """``sharp``: how far the scores spread."""
        q = rng.normal(0, sharp / np.sqrt(shape.d), (length, shape.heads, shape.d)).astype(np.float32)
        k, v = (kept(rng.normal(size=(length, shape.kv_heads, shape.d)), kind) for kind in (shape.k, shape.v))
        return cls(shape, q, k, v)

    @property
    def register(self) -> Floats:
        """The queries as attention wants them."""
        return query_slots(self.q, self.shape.k) if self.shape.k in QUANTISED else self.q

    def expected(self) -> NDArray[np.float64]:
        """Attention in float64."""
        shape = self.shape
        q = (queries(self.register, shape.k) if shape.k in QUANTISED else self.q).astype(np.float64)
        k, v = (np.repeat(x.astype(np.float64), shape.heads // shape.kv_heads, axis=1) for x in (self.k, self.v))
        scores = np.einsum("qhd,khd->hqk", q, k)
        i, j = np.arange(len(q))[:, None], np.arange(len(q))[None]
        scores = np.where((j <= i) & ((j > i - shape.window) | (shape.window == 0)), scores, -np.inf)
        p = np.exp(scores - scores.max(axis=2, keepdims=True))
        return np.asarray(np.einsum("hqk,khd->qhd", p / p.sum(axis=2, keepdims=True), v))


def call(driver: Driver, line: Line, rows: Sequence[int], cache: Cache, layer: int, kernels: Sequence[Any], **state: Any) -> Floats:
    """Attention for some of the line's queries, with kernels that find everything else in the state."""
    shape = line.shape
    q = driver.register(line.register[list(rows)].reshape(len(rows), -1))
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
    cache = shape.cache(driver, max(written, end), layer + 1)
    cache.put(0, line.k[:written], line.v[:written], layer)
    words = line_words(driver, cache, positions) | partials(driver, len(positions), shape.heads, shape.wide, -(-end // TILE))
    scratch = few_scratch(shape.heads, shape.kv_heads, shape.wide)
    kernels = [("attention_few", "attend_few", group or shape.heads // shape.kv_heads, shape.k, shape.v), ("attention_few", "merge_few")]
    return call(driver, line, positions, cache, layer, kernels, words=words, scratch=scratch)


def many(driver: Driver, line: Line, first: int, n: int, written: int | None = None, layer: int = 0) -> Floats:
    """attend_many for the rows first..first+n-1; the cache holds the first ``written`` positions (default: what is needed)."""
    shape, end = line.shape, first + n
    written = end if written is None else written
    cache = shape.cache(driver, written, layer + 1)
    cache.put(0, line.k[:written], line.v[:written], layer)
    words = line_words(driver, cache, range(first, end)) | query_tiles(driver, [(0, n, first, cache)])
    scratch = many_scratch(shape.heads, shape.kv_heads, shape.wide)
    return call(
        driver, line, range(first, end), cache, layer, [("attention_many", "attend_many", shape.k, shape.v)], words=words, scratch=scratch
    )


def same(a: Floats, b: Floats) -> bool:
    """Whether the bits are equal."""
    return np.array_equal(np.ascontiguousarray(a).view(np.int32), np.ascontiguousarray(b).view(np.int32))
