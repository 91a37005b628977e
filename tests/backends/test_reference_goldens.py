"""The reference backend against recorded logits of llama.cpp: the same weights dequantised, activations in float32.

TINY is the RMS error over the logits' standard deviation. All families but one come to 2e-6; llama.cpp rounds GELU to half precision, which
alone makes 7e-4 of gemma3. REAL is an absolute error of any recorded logit, for the same reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localllm.archs import FAMILIES
from tests.backends import run

TINY = {"gemma3": 1e-3}
EXACT = 1e-5
REAL = 2e-2
MODELS = (
    "SmolLM2-135M-Instruct.Q4_1",
    "gemma-3-270m-q4_k_m",
    "qwen2.5-coder-0.5b-instruct-q4_k_m",
    "qwen2.5-coder-1.5b-instruct-iq4_xs",
    "qwen2.5-coder-1.5b-instruct-q4_k_m",
)


@pytest.fixture(scope="module")
def entries(goldens: Path) -> list[dict[str, Any]]:
    index = json.loads((goldens / "tiny" / "index.json").read_text())
    return [entry for entry in index["models"] if entry["arch"] in FAMILIES]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_tiny(goldens: Path, entries: list[dict[str, Any]], family: str) -> None:
    mine = [entry for entry in entries if entry["arch"] == family]
    assert len(mine) >= 2
    failures = [failure for entry in mine for failure in compare(goldens / "tiny", entry, TINY.get(family, EXACT))]
    assert not failures


def compare(folder: Path, entry: dict[str, Any], limit: float) -> list[str]:
    """What is wrong with one file: its name, the passage, and the error."""
    failures = []
    with np.load(folder / entry["golden"]) as golden, run.session(folder / entry["file"]) as session:
        for passage, last in (("", 8), ("long_", 4)):
            if f"{passage}tokens" not in golden:
                continue
            name = f"{passage}logits_f32" if f"{passage}logits_f32" in golden else f"{passage}logits"
            found = run.logits(session, golden[f"{passage}tokens"].tolist(), last)
            error = float(np.sqrt(np.mean(np.square(found - golden[name], dtype=np.float64))) / golden[name].std())
            if not error <= limit:
                failures.append(f"{entry['file']} {passage} {error:.1e}")
    return failures


@pytest.mark.model
@pytest.mark.parametrize("name", MODELS)
def test_real(goldens: Path, model_file: Callable[[str], Path], name: str) -> None:
    golden = json.loads((goldens / "real" / f"{name}.json").read_text())
    with run.session(model_file(golden["model"])) as session:
        for prompt in golden["prompts"]:
            rows = run.logits(session, prompt["tokens"], len(prompt["positions_f32"]))
            for row, expected in zip(rows, prompt["positions_f32"], strict=True):
                np.testing.assert_allclose(row[expected["top_ids"]], expected["top_logits"], rtol=0, atol=REAL, err_msg=prompt["id"])
                assert np.log(np.sum(np.exp(row.astype(np.float64)))) == pytest.approx(expected["logsumexp"], abs=REAL)
