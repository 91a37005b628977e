"""What a model will take, told before it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

import localllm
from localllm.footprint import footprint
from tests import tiny


@pytest.mark.parametrize(("backend", "size"), [("cpu", 2), ("reference", 4)])
def test_weights_and_cache(tmp_path: Path, backend: str, size: int) -> None:
    path = tiny.write(tmp_path / "m.gguf", layers=3, heads=4, kv_heads=2, embed=64, context=128)
    with localllm.open_gguf(path) as file:
        found = footprint(file, backend)
        weights = sum(tensor.nbytes for tensor in file.tensors.values())
    assert found.backend == backend and found.context == 128
    assert found.per_token == 3 * 2 * (2 * 16) * size
    assert weights <= found.weights < 10 * weights + 64_000_000
    assert found.total(100) == found.weights + 100 * found.per_token


@pytest.mark.parametrize(("k", "v", "bits"), [("f32", "f32", 64), ("q8_0", "q8_0", 17), ("q8_0", "q4_0", 13), ("q4_0", "q4_0", 9)])
def test_types_of_the_cache(tmp_path: Path, k: str, v: str, bits: int) -> None:
    with localllm.open_gguf(tiny.write(tmp_path / "m.gguf", layers=3, heads=4, kv_heads=2, head_dim=32)) as file:
        assert footprint(file, "cpu", cache_type_k=k, cache_type_v=v).per_token == 3 * 2 * 32 * bits / 8


def test_windows(tmp_path: Path) -> None:
    with localllm.open_gguf(tiny.write(tmp_path / "m.gguf", "gemma3", layers=3, period=3, window=16, head_dim=32)) as file:
        found = footprint(file, "cpu")
    layer = 2 * 2 * 32 * 2
    assert found.per_token == layer and found.windows == {32: 2 * layer}
    assert found.cache(20) == 20 * 3 * layer and found.cache(100) == 100 * layer + 32 * 2 * layer


def test_a_type_that_does_not_exist(tmp_path: Path) -> None:
    with localllm.open_gguf(tiny.write(tmp_path / "m.gguf")) as file, pytest.raises(localllm.LocalLLMError, match="kv_type_k is 'q9'"):
        footprint(file, "cpu", cache_type_k="q9")
