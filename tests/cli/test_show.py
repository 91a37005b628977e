"""``localllm show``: what is in a file, told shortly, and safe to look at."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from tests.cli.fakes import Ran

Run = Callable[..., Ran]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model with metadata of every kind."""
    metadata = {"general.name": "evil \x1b[31m\nname", "x.text": "long " * 100, "x.numbers": list(range(500)), "x.number": 0.5}
    return tiny.write(tmp_path / "m.gguf", type="Q8_0", metadata=metadata)


def test_metadata_types_and_memory(run: Run, model: Path) -> None:
    ran = run("show", model, "--backend", "reference", terminal=True)
    assert ran.code == 0 and ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0] == f"{model}: GGUF version 3"
    assert any(line.split() == ["general.architecture", "llama"] for line in lines)
    assert any("evil \u241b[31m\\nname" in line for line in lines)
    assert any(line.endswith("long ... (500 characters)") for line in lines)
    assert any(line.endswith("[0, 1, 2, 3, 4, 5, 6, 7, ...] (500)") for line in lines)
    assert any(line.startswith("Q8_0 ") and line.endswith(" MB") for line in lines)
    assert any(line.startswith("memory: ") and line.endswith("(backend reference)") for line in lines)
    # 2 layers x (key + value) x 2 heads x 16 values x 4 bytes
    assert any("0.5 kB for each token of the context" in line and line.endswith("for all 256") for line in lines)


def test_json(run: Run, model: Path) -> None:
    record = json.loads(run("show", model, "--json", "--tensors", "--backend", "reference").out)
    assert record["files"] == [str(model)] and record["version"] == 3
    assert record["metadata"]["general.name"] == "evil \x1b[31m\nname"
    assert record["metadata"]["x.text"] == "long " * 100 and record["metadata"]["x.number"] == 0.5
    assert record["metadata"]["x.numbers"] == {"length": 500, "first": list(range(64))}
    assert record["memory"]["context"] == 256 and record["memory"]["per_token"] == 512
    assert record["tensors"]["token_embd.weight"]["type"] == "Q8_0"
    assert sum(kind["tensors"] for kind in record["types"].values()) == len(record["tensors"])
    assert record["types"]["F32"]["bytes"] == 4 * record["types"]["F32"]["values"]


def test_the_sampling_that_a_file_recommends(run: Run, tmp_path: Path, model: Path) -> None:
    metadata = {"general.sampling.temp": 0.6, "general.sampling.sequence": "top_k;temperature", "general.sampling.top_p": 9.0}
    path = tiny.write(tmp_path / "r.gguf", metadata=metadata)
    assert "sampling: samplers [top_k, temperature], temperature 0.6 (recommended by the file)" in run("show", path).out.replace("'", "")
    assert json.loads(run("show", path, "--json").out)["sampling"] == {"samplers": ["top_k", "temperature"], "temperature": 0.6}
    assert "sampling:" not in run("show", model).out


def test_every_tensor(run: Run, model: Path) -> None:
    lines = run("show", model, "--tensors").out.splitlines()
    assert any(line.split() == ["blk.1.ffn_down.weight", "Q8_0", "64", "x", "96"] for line in lines)


def test_a_model_that_cannot_be_run_can_be_looked_at(run: Run, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"general.architecture": "hyena"})
    ran = run("show", path)
    assert ran.code == 0
    assert "architecture 'hyena' is not supported" in next(line for line in ran.out.splitlines() if line.startswith("memory: not known: "))


def test_what_is_no_model(run: Run, tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html><html>")
    ran = run("show", tmp_path / "page.gguf")
    assert ran.code == 3 and ran.out == "" and ran.err.startswith("error: ") and ran.err.count("\n") == 1


def test_not_a_number_is_still_json(run: Run, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"x.nan": float("nan"), "x.list": [1.5, float(np.float32(np.inf))]})
    metadata = json.loads(run("show", path, "--json", "--backend", "reference").out, parse_constant=pytest.fail)["metadata"]
    assert metadata["x.nan"] == "nan" and metadata["x.list"] == [1.5, "inf"]
