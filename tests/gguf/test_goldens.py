"""Files that other people's software made, against the gguf package's reader; and how much faster ours is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from localllm.gguf import open_gguf
from tests.gguf.oracle import compare

# The oracle takes seconds on large vocabularies.
SMALL = 750_000
UNKNOWN_TO_THE_ORACLE = "quant-q2_0-31.gguf"


def test_tiny_models(goldens: Path) -> None:
    paths = sorted((goldens / "tiny").glob("*.gguf"))
    assert len(paths) > 100
    assert sum(compare(path) for path in paths if path.name != UNKNOWN_TO_THE_ORACLE) > 5000


def test_a_type_that_the_oracle_does_not_know(goldens: Path) -> None:
    with open_gguf(goldens / "tiny" / UNKNOWN_TO_THE_ORACLE) as file, open_gguf(goldens / "tiny" / "quant-q1_0-31.gguf") as other:
        assert [(tensor.name, tensor.shape) for tensor in file.tensors.values()] == [
            (tensor.name, tensor.shape) for tensor in other.tensors.values()
        ]
        types = {tensor.type for tensor in file.tensors.values()}
        assert "Q2_0" in types and "Q1_0" not in types
        last = max(file.tensors.values(), key=lambda tensor: tensor.offset)
        assert file.path.stat().st_size - last.offset - last.nbytes < 32


def test_small_vocabularies(goldens: Path) -> None:
    paths = [path for path in sorted((goldens / "vocab").glob("*.gguf")) if path.stat().st_size < SMALL]
    assert len(paths) >= 3
    assert sum(map(compare, paths)) > 50


@pytest.mark.model
def test_large_vocabularies(goldens: Path) -> None:
    paths = [path for path in sorted((goldens / "vocab").glob("*.gguf")) if path.stat().st_size >= SMALL]
    assert sum(map(compare, paths)) > 100


@pytest.mark.model
def test_real_models(models: Path) -> None:
    paths = sorted(models.glob("*.gguf"))
    assert paths
    for path in paths:
        start = time.perf_counter()
        reader = gguf.GGUFReader(path)
        theirs = time.perf_counter() - start
        ours = _fastest(path)
        print(f"{path.name}: opened in {ours * 1e3:.1f} ms, by gguf.GGUFReader in {theirs * 1e3:.0f} ms, {theirs / ours:.0f} times as long")
        assert ours < theirs / 50
        assert compare(path, reader) > 200


@pytest.mark.model
def test_gemma_opens_at_once(model_file: Callable[[str], Path]) -> None:
    path = model_file("gemma-3-270m-q4_k_m.gguf")
    assert len(open_gguf(path).metadata["tokenizer.ggml.tokens"]) == 262_144
    assert _fastest(path) < 0.1


def _fastest(path: Path) -> float:
    """Seconds of the fastest of a few openings."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        open_gguf(path).close()
        best = min(best, time.perf_counter() - start)
    return best
