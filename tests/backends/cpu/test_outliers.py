"""Layers whose keys have a large bias keep them as floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from localllm.backends.base import Options
from localllm.footprint import footprint
from localllm.gguf import open_gguf
from tests import tiny
from tests.backends import run

TOKENS = np.random.default_rng(4).integers(3, 300, 80).tolist()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The second of three layers has a value of 100 in one of its key heads."""
    bias = np.zeros(64, np.float32)
    bias[37] = 100
    return tiny.write(tmp_path / "a.gguf", "qwen2", layers=3, head_dim=32, tensors={"blk.1.attn_k.bias": bias})


@pytest.mark.parametrize(("k", "kinds"), [("q8_0", ["q8_0", "f16", "q8_0"]), ("q4_0", ["q4_0", "f16", "q4_0"]), ("f32", ["f32"] * 3)])
def test_only_those_layers(path: Path, k: str, kinds: list[str]) -> None:
    with run.session(path, "cpu", Options(2, 512, k, "q8_0")) as session:
        layouts = session._engine.storage.layouts  # type: ignore[attr-defined]
        assert [layouts[layer].k for layer in range(3)] == kinds
        assert all(layout.v == "q8_0" for layout in layouts.values())
    with open_gguf(path) as file:
        bits = {"f32": 32, "f16": 16, "q8_0": 8.5, "q4_0": 4.5}
        assert footprint(file, "cpu", cache_type_k=k, cache_type_v="q8_0").per_token == sum(64 * (bits[kind] + 8.5) / 8 for kind in kinds)


def test_the_predictions_stay_near(path: Path) -> None:
    found = {}
    for types in (("f32", "f32"), ("q8_0", "f32")):
        with run.session(path, "cpu", Options(2, 512, *types)) as session:
            found[types[0]] = run.logits(session, TOKENS, len(TOKENS))
            chunks = run.logits(session, TOKENS, len(TOKENS), 7)
            assert np.array_equal(chunks, found[types[0]])
    error = np.sqrt(np.mean(np.square(found["q8_0"] - found["f32"]))) / found["f32"].std()
    assert error < 0.05
