"""``localllm perplexity``: the figure that the logits give."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import localllm
from tests import tiny
from tests.cli.fakes import Ran

Run = Callable[..., Ran]
WINDOW = 32


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model."""
    return tiny.write(tmp_path / "m.gguf", layers=1)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text of more than three windows."""
    path = tmp_path / "text.txt"
    path.write_text("The quick brown fox jumps over the lazy dog. " * 6)
    return path


def expected(model: Path, text: Path, chunks: int) -> float:
    """By the definition, from the public surface."""
    losses: list[float] = []
    with localllm.load(model, backend="reference") as loaded:
        ids = loaded.tokenizer.encode(text.read_text())
        for start in range(0, chunks * WINDOW, WINDOW):
            window = [ids[0], *ids[start + 1 : start + WINDOW]]
            logits = loaded.logits(window, last=WINDOW).astype(np.float64)
            logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            losses += [-logs[i, window[i + 1]] for i in range(WINDOW // 2, WINDOW - 1)]
    return float(np.exp(np.mean(losses)))


def test_json_is_the_last_line(run: Run, model: Path, text: Path) -> None:
    ran = run("perplexity", model, text, "--chunks", 3, "--ctx", WINDOW, "--backend", "reference", "--json")
    assert ran.code == 0
    record = json.loads(ran.out.splitlines()[-1])
    assert record["ppl"] == pytest.approx(expected(model, text, 3), rel=1e-4)
    assert record["chunks"] == len(record["per_chunk"]) == 3 and record["ctx"] == WINDOW
    assert record["per_chunk"][-1] == record["ppl"]


def test_for_people(run: Run, model: Path, text: Path) -> None:
    out = run("perplexity", model, text, "--chunks", 1, "-c", WINDOW, "--backend", "reference").out
    found = re.fullmatch(r"perplexity ([\d.]+) \+/- [\d.]+ \(1 windows of 32 tokens\)\n", out)
    assert found and float(found[1]) == pytest.approx(expected(model, text, 1), rel=1e-4)


def test_a_text_that_is_too_short(run: Run, model: Path, text: Path) -> None:
    ran = run("perplexity", model, text, "--backend", "reference")
    assert ran.code == 2 and "expected at least one window of 512" in ran.err


def test_divergence_from_another_type(run: Run, model: Path, text: Path) -> None:
    arguments = ("perplexity", model, text, "-c", WINDOW, "--chunks", 2, "--backend", "reference", "--kl-against", "f32")
    same = json.loads(run(*arguments, "--json").out)
    assert same["mean"] == same["largest"] == 0 and same["same"] == 1 and same["tokens"] == 2 * (WINDOW // 2 - 1) and same["chunks"] == 2
    few = json.loads(run(*arguments, "-ctk", "q4_0", "--cache-type-v", "q4_0", "--json").out)
    more = json.loads(run(*arguments, "-ctk", "q8_0", "-ctv", "q8_0", "--json").out)
    assert 0 < more["mean"] < few["mean"] / 20
    assert few["base_ppl"] == same["ppl"] == same["base_ppl"] != few["ppl"]
    assert re.fullmatch(
        r"KL divergence 0\.\d+ \+/- .*; same likeliest token .* \(2 windows of 32 tokens\)\n", run(*arguments, "-ctk", "q4_0").out
    )


def test_a_type_that_does_not_exist(run: Run, model: Path, text: Path) -> None:
    ran = run("perplexity", model, text, "-c", WINDOW, "--kl-against", "q9")
    assert ran.code == 2 and "option 'cache_type_k' is 'q9'" in ran.err
