"""Head norms, rotation, scale, and what is stored in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localllm.backends.cpu.arguments import ROPE_STORE, rope_scratch
from localllm.backends.cpu.records import float_bits
from tests.backends.cpu.driver import Cache, Driver, Register, call_words, jit, line_words, rope_words
from tests.backends.cpu.kv import queries, wide

EPS = 1e-6
SCALE = 0.25


@dataclass
class Case:
    """One call of rope_store, ready to run."""

    kind: str
    heads: int
    kv_heads: int
    d: int
    dim: int
    positions: list[int]
    norms: bool
    layer: int = 0
    k_type: str = "f16"
    v_type: str = "f16"

    def run(
        self, driver: Driver, rng: np.random.Generator, spoil: float | None = None
    ) -> tuple[Register, Register, Register, Register, Cache, dict[str, Any]]:
        """(q before, q, k, v, cache, tables and norm weights). ``spoil``: a value of the first head of the first row."""
        rows, length = len(self.positions), max(self.positions) + 1
        q = rng.normal(size=(rows, self.heads * self.d))
        before, q_register = driver.register(q), driver.register(q)
        k, v = (driver.register(rng.normal(size=(rows, self.kv_heads * self.d))) for _ in range(2))
        if spoil is not None:
            q_register.data[0, 7] = k.data[0, 7] = v.data[0, 7] = spoil
        angles = rng.uniform(0, 7, (length, self.dim // 2))
        table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
        weights = [rng.normal(1, 0.2, self.d).astype(np.float32) for _ in range(2)]
        cache = Cache(driver, length, self.kv_heads, self.d, self.layer + 1, self.k_type, self.v_type)
        state = driver.state({**line_words(driver, cache, self.positions), **rope_words(driver, [table[:0], table])}, rope_scratch(self.d))
        words = {**q_register.words("q"), **k.words("k"), **v.words("v"), "heads": self.heads, "kv_heads": self.kv_heads}
        words |= {"head_dim": self.d, "dim": self.dim, "rope": 1, "rows": driver.count(rows)}
        words |= {name: driver.weight(w) if self.norms else 0 for name, w in zip(("q_norm", "k_norm"), weights, strict=True)}
        words |= {"eps": float_bits(EPS), "scale": float_bits(SCALE), **cache.place(self.layer)}
        driver.run(("rope", "rope_store", self.kind, self.k_type, self.v_type), ROPE_STORE, words, state)
        return before, q_register, k, v, cache, {"table": table, "weights": weights}

    def expected(self, x: Register, heads: int, table: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float64]:
        """Normalised and rotated heads (rows, heads, d), in float64."""
        out = x.data.astype(np.float64).reshape(-1, heads, self.d)
        if self.norms:
            out = out / np.sqrt(np.mean(out**2, axis=2, keepdims=True) + EPS) * weight
        half = self.dim // 2
        cos, sin = (table[self.positions, part][:, None].astype(np.float64) for part in (slice(0, half), slice(half, None)))
        first, second = {
            "neox": (slice(0, half), slice(half, self.dim)),
            "norm": (slice(0, self.dim, 2), slice(1, self.dim, 2)),
            "none": (slice(0, 0), slice(0, 0)),
        }[self.kind]
        if self.kind != "none":
            a, b = out[..., first].copy(), out[..., second].copy()
            out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
        return out


CASES = [
    Case("neox", 4, 2, 64, 64, [0], norms=False),
    Case("neox", 3, 1, 20, 20, [5, 6, 7], norms=False),
    Case("neox", 14, 2, 64, 64, list(range(60, 80)), norms=False, layer=2),
    Case("neox", 4, 4, 96, 72, [130, 3, 64], norms=True),
    Case("neox", 2, 1, 128, 128, [63, 64, 65, 127, 128], norms=True, layer=1),
    Case("neox", 4, 1, 256, 256, [9], norms=True),
    Case("norm", 4, 2, 64, 64, [0, 1], norms=False),
    Case("norm", 9, 3, 64, 64, list(range(40)), norms=False),
    Case("norm", 3, 3, 20, 12, [17], norms=True),
    Case("norm", 6, 2, 80, 34, [64, 65], norms=False, layer=1),
    Case("norm", 1, 1, 100, 100, [70, 71, 72], norms=True),
    Case("none", 4, 2, 40, 0, [62, 63, 64], norms=False),
    Case("none", 2, 2, 48, 0, [1], norms=True),
]


QUANTISED = [
    Case("neox", 14, 2, 64, 64, [60, 61, 64, 130], norms=True, layer=1, k_type="q8_0", v_type="q8_0"),
    Case("norm", 3, 1, 20, 20, [15, 16], norms=False, k_type="q8_0", v_type="q8_0"),
    Case("neox", 4, 2, 128, 64, [5, 70], norms=False, k_type="q4_0", v_type="q4_0"),
    Case("none", 2, 2, 80, 0, [1], norms=False, k_type="q4_0", v_type="f16"),
    Case("norm", 2, 1, 96, 96, [64, 65], norms=False, k_type="f16", v_type="q4_0"),
    Case("norm", 2, 1, 256, 256, [3], norms=True, k_type="q4_0", v_type="q8_0"),
]
IDS = [f"{c.kind}-{c.heads}x{c.kv_heads}x{c.d}-{c.dim}-{c.k_type}-{c.v_type}" for c in CASES + QUANTISED]


@pytest.mark.parametrize("case", QUANTISED, ids=IDS[len(CASES) :])
def test_quantised_heads(case: Case, rng: np.random.Generator) -> None:
    before, q, k, v, cache, given = case.run(Driver(threads=2), rng)
    turn = hadamard(case.d) if case.k_type != "f16" else np.eye(case.d)
    expected = case.expected(before, case.heads, given["table"], given["weights"][0]) * SCALE
    keys = case.expected(k, case.kv_heads, given["table"], given["weights"][1])
    slots = q.data.reshape(expected.shape)
    if case.k_type == "f16":
        np.testing.assert_allclose(slots, expected, rtol=2e-6, atol=2e-7)
    else:
        _near(queries(slots, case.k_type), expected @ turn, "q8_0")
    q.check_padding()
    for row, position in enumerate(case.positions):
        stored_k, stored_v = cache.get(position, case.layer)
        _near(stored_k[:, : case.d], keys[row] @ turn, case.k_type)
        _near(stored_v[:, : case.d], v.data[row].reshape(case.kv_heads, case.d), case.v_type)
        assert not np.any(stored_k[:, case.d :]) and not np.any(stored_v[:, case.d :])


def _near(found: NDArray[np.float32], exact: NDArray[np.float64], kind: str) -> None:
    """Half a step off, a little more where a step was rounded; in 4 bits a whole one where a value is as large as the largest, with the
    other sign."""
    blocks = wide(exact).reshape(*exact.shape[:-1], -1, 32)
    largest = np.repeat(np.abs(blocks).max(axis=-1), 32, axis=-1)[..., : exact.shape[-1]]
    error = np.abs(found - exact)
    if kind == "f16":
        assert np.all(error <= 6e-4 * np.abs(exact) + 6e-7)
    elif kind == "q8_0":
        assert np.all(error <= (0.5 / 127 + 1e-3) * largest)
    else:
        assert np.all(error <= (1 / 8 + 1e-3) * largest)
        assert np.mean(error / largest) <= 0.04  # a uniform error of half a step at most has a mean of 1/32


def hadamard(d: int) -> NDArray[np.float64]:
    """Sylvester's matrix of the largest power of two that divides d, over the diagonal, orthogonal."""
    n, h = d & -d, np.ones((1, 1))
    if n < 16:
        return np.eye(d)
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return np.asarray(np.kron(np.eye(d // n), h / np.sqrt(n)))


@pytest.mark.parametrize("k_type", ["q8_0", "q4_0"])
def test_a_head_that_is_not_finite_says_so(k_type: str, rng: np.random.Generator) -> None:
    case = Case("none", 2, 2, 64, 0, [1, 2], norms=False, k_type=k_type, v_type=k_type)
    for value in (np.nan, np.inf, -np.inf):
        _, q, _, _, cache, _ = case.run(Driver(), rng, spoil=value)
        stored_k, stored_v = cache.get(1)
        assert not np.any(np.isfinite(stored_k[0])) and np.all(np.isfinite(stored_k[1]))
        assert not np.any(np.isfinite(stored_v[0, :32])) and np.all(np.isfinite(stored_v[:, 32:]))
        found = queries(q.data.reshape(2, 2, 64), k_type)
        assert not np.any(np.isfinite(found[0, 0])) and np.all(np.isfinite(found[1]))


@pytest.mark.parametrize("case", CASES, ids=IDS[: len(CASES)])
def test_rope_store(case: Case, rng: np.random.Generator) -> None:
    before, q, k, v, cache, given = case.run(Driver(threads=2), rng)
    expected = case.expected(before, case.heads, given["table"], given["weights"][0]) * SCALE
    # Two products and a sum of values up to about 5: a few half-ulps of the largest.
    np.testing.assert_allclose(q.data, expected.reshape(q.data.shape), rtol=2e-6, atol=2e-7)
    q.check_padding()
    keys = case.expected(k, case.kv_heads, given["table"], given["weights"][1])
    for row, position in enumerate(case.positions):
        stored_k, stored_v = cache.get(position, case.layer)
        # Float16 of a float32 that is a little off: one half-ulp of 2^-11, and now and then the neighbour.
        np.testing.assert_allclose(stored_k[:, : case.d], keys[row], rtol=6e-4, atol=6e-7)
        assert np.array_equal(stored_v[:, : case.d], v.data[row].reshape(case.kv_heads, case.d).astype(np.float16))
        assert not np.any(stored_k[:, case.d :]) and not np.any(stored_v[:, case.d :])


def test_only_the_rows_positions_are_written(rng: np.random.Generator) -> None:
    case = Case("neox", 2, 2, 32, 32, [1, 66], norms=False, layer=1)
    *_, cache, _ = case.run(Driver(), rng)
    for position in range(67):
        assert np.all(np.isnan(cache.get(position, layer=0)[0]))
        written = position in case.positions
        assert all(np.all(np.isnan(x)) != written for x in cache.get(position, layer=1))


def test_keys_are_rounded_to_nearest_even() -> None:
    """Values on the way from float32 to float16, halfway cases, subnormals and infinity among them."""
    from localllm.backends.cpu.kernels.parts import scatter_h
    from localllm.backends.cpu.kernels.vec import ld_f

    def run(x: int, out: int, n: int, thread: int) -> None:
        for i in range(0, n, 16):
            scatter_h(out + 2 * i, 2, ld_f(x + 4 * i))

    exact = np.arange(0, 0x7C00, 7, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (exact[1:] + exact[:-1]) / 2
    special = np.array([65504, 65519.99, 65520, 1e9, np.inf, 1e-8, 2.0**-25, 2.0**-24 * 1.5, 5.9e-8], np.float32)
    x = np.concatenate([exact, between, np.nextafter(between, np.float32(0)), special])
    x = np.concatenate([x, -x])
    x = np.concatenate([x, np.zeros(-len(x) % 16, np.float32)])
    out = np.empty(len(x), np.float16)
    call_words(jit(run, "halves_of_array"), x.ctypes.data, out.ctypes.data, len(x))
    with np.errstate(over="ignore"):
        assert np.array_equal(out.view(np.uint16), x.astype(np.float16).view(np.uint16))
