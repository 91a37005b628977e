"""The cpu backend against recorded logits of llama.cpp.

Its error to the exact logits (``_f32``: dequantised weights, float32 activations) is compared with that of llama.cpp's own kernels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localllm.archs import FAMILIES
from tests.backends import run

MEAN, WORST = 1.1, 2.0
"""Limits of our error over the oracle's: geometric mean over all files, and for any one."""
FLOOR, ROUNDING = 5e-3, 2e-2
"""Over the standard deviation of the logits: below this the oracle's error is taken to be this, in the mean and for one file."""


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def test_tiny(goldens: Path) -> None:
    entries = json.loads((goldens / "tiny" / "index.json").read_text())["models"]
    ratios = [ratio for entry in entries if entry["arch"] in FAMILIES for ratio in compare(goldens / "tiny", entry)]
    assert len(ratios) >= 50
    assert math.exp(np.mean(np.log(ratios))) <= MEAN


def compare(folder: Path, entry: dict[str, Any]) -> list[float]:
    """Our error over the oracle's, for each passage of a file; and the greedy tokens."""
    ratios = []
    with np.load(folder / entry["golden"]) as golden, run.session(folder / entry["file"], "cpu") as session:
        for passage, last in (("", 8), ("long_", 4)):
            if f"{passage}tokens" not in golden:
                continue
            native = golden[f"{passage}logits"]
            exact = golden.get(f"{passage}logits_f32", native)
            error = rms(run.logits(session, golden[f"{passage}tokens"].tolist(), last) - exact)
            noise, spread = rms(native - exact), float(exact.std())
            assert error <= WORST * max(noise, ROUNDING * spread), entry["file"]
            ratios.append(max(error / max(noise, FLOOR * spread), 1e-3))
        suffix = "_f32" if "greedy_f32" in golden else ""
        follow(session, golden["tokens"].tolist(), golden[f"greedy{suffix}"], golden[f"greedy_gap{suffix}"], entry)
    return ratios


def follow(session: Any, tokens: list[int], greedy: Any, gaps: Any, entry: dict[str, Any]) -> None:
    """Greedy tokens equal the recorded ones up to the first step whose gap is within the noise."""
    line = session.new_line()
    row = run.feed(session, line, tokens, [len(tokens) - 1])[0]
    for token, gap in zip(greedy.tolist(), gaps.tolist(), strict=True):
        if gap < 6 * max(entry.get("native_vs_f32_rms", 0.0), ROUNDING * entry["std"]):
            return
        assert int(row.argmax()) == token, entry["file"]
        row = run.feed(session, line, [token])[0]


@pytest.mark.model
@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct.Q4_1", "gemma-3-270m-q4_k_m", "qwen2.5-coder-0.5b-instruct-q4_k_m"])
def test_real(goldens: Path, model_file: Callable[[str], Path], name: str) -> None:
    golden = json.loads((goldens / "real" / f"{name}.json").read_text())
    ours, oracles = [], []
    with run.session(model_file(golden["model"]), "cpu") as session:
        for prompt in golden["prompts"]:
            rows = run.logits(session, prompt["tokens"], len(prompt["positions_f32"]))
            for row, exact, native in zip(rows, prompt["positions_f32"], prompt["positions"], strict=True):
                wanted = dict(zip(exact["top_ids"], exact["top_logits"], strict=True))
                oracle = dict(zip(native["top_ids"], native["top_logits"], strict=True))
                both = [i for i in wanted if i in oracle]
                ours.append(rms([row[i] - wanted[i] for i in both]))
                oracles.append(rms([oracle[i] - wanted[i] for i in both]))
    assert np.mean(ours) <= WORST * np.mean(oracles)
