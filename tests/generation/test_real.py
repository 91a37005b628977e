"""Generation on a real model, against what llama.cpp recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import localllm
from localllm.generation.perplexity import perplexity

pytestmark = pytest.mark.model
NAME = "SmolLM2-135M-Instruct.Q4_1"


@pytest.fixture(scope="module")
def golden(goldens: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((goldens / "real" / f"{NAME}.json").read_text())
    return found


@pytest.fixture(scope="module")
def model(model_file: Callable[[str], Path]) -> Iterator[localllm.Model]:
    with localllm.load(model_file(f"{NAME}.gguf"), ctx=2048) as model:
        yield model


def test_perplexity_is_the_recorded_one(model: localllm.Model, golden: dict[str, Any], goldens: Path) -> None:
    recorded = golden["perplexity"]
    text = (goldens / "text" / recorded["text"]).read_text()
    found = perplexity(model, text, chunks=4, n_ctx=recorded["n_ctx"])
    assert found.per_chunk[-1] == pytest.approx(recorded["running_ppl"][3], rel=0.015)
    assert found.tokens == 4 * 255


def test_greedy_tokens_are_the_recorded_ones_up_to_the_first_close_call(model: localllm.Model, golden: dict[str, Any]) -> None:
    for prompt in golden["prompts"]:
        sure = next((n for n, gap in enumerate(prompt["greedy_f32_gap"]) if gap < 1), len(prompt["greedy_f32_gap"]))
        said = model.generate(prompt["tokens"], temperature=0, max_tokens=max(sure, 1))
        # The recording goes on after a token that ends generation; an answer does not.
        count = min(sure, len(said.tokens))
        assert list(said.tokens[:count]) == prompt["greedy_f32"][:count], prompt["id"]
        assert count == sure or said.finish_reason == "stop", prompt["id"]


def test_seed_and_text_do_not_depend_on_threads_or_chunks(model: localllm.Model, model_file: Callable[[str], Path]) -> None:
    options: dict[str, Any] = {"seed": 3, "max_tokens": 24}
    first = model.generate("Why is the sky blue?", **options)
    with localllm.load(model_file(f"{NAME}.gguf"), threads=1, batch=5) as other:
        assert other.generate("Why is the sky blue?", **options).tokens == first.tokens
    assert first.tokens != model.generate("Why is the sky blue?", seed=4, max_tokens=24).tokens


def test_several_answers_are_what_each_is_alone(model: localllm.Model) -> None:
    options: dict[str, Any] = {
        "seed": 3,
        "max_tokens": 32,
        "xtc_probability": 0.5,
        "dry_multiplier": 0.8,
        "repeat_penalty": 1.1,
        "logprobs": 2,
    }
    together = model.generate("Why is the sky blue?", n=3, **options)
    for result in together:
        alone = model.generate("Why is the sky blue?", completion=result.completion, **options)
        assert (result.text, result.logprobs) == (alone.text, alone.logprobs)
    assert len({result.text for result in together}) == 3
