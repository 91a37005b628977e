"""What a model will take, told before it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

import localllm
from localllm import backends
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


def test_every_backend_is_known() -> None:
    assert set(backends.NAMES) == {"cpu", "reference"}, "footprint.py needs the size of the new backend's cached values"
