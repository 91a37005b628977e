"""The suite's own models: every format can be written, and what is read back has the wanted deviation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localllm import quant
from localllm.archs import build
from localllm.gguf import open_gguf
from tests import tiny, tiny_vocabulary


@pytest.mark.parametrize("type", quant.NAMES)
def test_every_format(type: str, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "a.gguf", type=type, embed=256, ff=256, layers=1, vocabulary=None, rows=50)
    with open_gguf(path) as file:
        assert {tensor.type for tensor in file.tensors.values()} == {type, "F32"}
        assert set(build(file).shapes) == set(file.tensors)
        values = quant.dequantize(file.read("blk.0.attn_q.weight"), type)
    assert values.shape == (256, 256) and np.isfinite(values).all()
    assert values.std() == pytest.approx(1.5 / 16, rel=0.35)
    assert abs(values.mean()) < values.std() / 2


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family(family: str, tmp_path: Path) -> None:
    path = tiny.write(
        tmp_path / "a.gguf", family, embed=72, heads=3, kv_heads=1, ff=100, head_dim=24, type="Q4_K", types={"ffn_up.weight": "F16"}
    )
    with open_gguf(path) as file:
        assert build(file).vocab == len(file.metadata["tokenizer.ggml.tokens"])
        assert file.tensors["blk.0.attn_q.weight"].type == "F16" and file.tensors["blk.0.attn_norm.weight"].type == "F32"


def test_equal_arguments_give_equal_bytes(tmp_path: Path) -> None:
    one, two = (tiny.write(tmp_path / name, "qwen3", type="Q4_0", vocabulary="bpe").read_bytes() for name in ("a.gguf", "b.gguf"))
    assert one == two
    assert tiny.write(tmp_path / "c.gguf", "qwen3", type="Q4_0", vocabulary="bpe", seed=1).read_bytes() != one


def test_changes(tmp_path: Path) -> None:
    path = tiny.write(
        tmp_path / "a.gguf",
        metadata={"llama.block_count": None, "x.y": [1, 2]},
        tensors={"output.weight": None, "z": np.ones((2, 3), np.float32)},
    )
    with open_gguf(path) as file:
        assert "llama.block_count" not in file.metadata and list(file.metadata["x.y"]) == [1, 2]
        assert "output.weight" not in file.tensors and file.tensors["z"].shape == (2, 3)


@pytest.mark.parametrize("keys", [tiny_vocabulary.spm(), tiny_vocabulary.bpe()], ids=["spm", "bpe"])
def test_vocabularies(keys: dict[str, Any]) -> None:
    tokens = keys["tokenizer.ggml.tokens"]
    assert len(set(tokens)) == len(tokens) == len(keys["tokenizer.ggml.token_type"])
    for merge in keys.get("tokenizer.ggml.merges", []):
        assert {*merge.split(), merge.replace(" ", "")} <= set(tokens)
