"""The same text with and without guesses, bit for bit, on the cpu backend: families, samplers, seeds, sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import localllm
from localllm.errors import OptionError
from tests import tiny

MODELS: dict[str, dict[str, Any]] = {
    "llama": {"type": "Q8_0"},
    "experts": {"type": "Q8_0", "experts": 5},
    "qwen2": {"type": "Q5_0", "embed": 96, "heads": 6, "kv_heads": 2},
    "qwen3": {"type": "Q8_0", "head_dim": 64},
    "gemma3": {"type": "Q4_0", "layers": 7, "window": 16, "head_dim": 32},
}
SAMPLERS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.05, "seed": 1},
    {"temperature": 1.0, "seed": 2},
    {"temperature": 1.5, "seed": 3, "top_k": 0, "top_p": 0.9},
    {"temperature": 1.0, "seed": 4, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0.3, "seed": 5, "repeat_penalty": 1.2, "repeat_last_n": 8, "presence_penalty": 0.1},
    {"temperature": 1.0, "seed": 6, "mirostat": 2},
    {"temperature": 0.7, "seed": 7, "dry_multiplier": 0.8, "xtc_probability": 0.5, "typical_p": 0.9, "logprobs": 2},
]
PROMPT = [5, 270, 280, 290, 300, 270, 280, 290]


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[localllm.Model]:
    """With a draft whose weights are the same, but for those of the last norm."""
    folder = tmp_path_factory.mktemp("models")
    family = request.param if request.param in tiny.FAMILIES else "llama"
    path = tiny.write(folder / "a.gguf", family, **MODELS[request.param])
    norm = tiny.weights(tiny.Spec(family=family, **MODELS[request.param]))["output_norm.weight"]
    other = norm * np.random.default_rng(0).uniform(0.8, 1.2, norm.shape).astype(np.float32)
    draft = tiny.write(folder / "b.gguf", family, **MODELS[request.param], tensors={"output_norm.weight": other})
    with localllm.load(path, backend="cpu", draft=draft) as model:
        yield model


@pytest.mark.parametrize("options", SAMPLERS)
def test_guesses_change_no_token(model: localllm.Model, options: dict[str, Any]) -> None:
    chosen: dict[str, Any] = {"max_tokens": 100, "ignore_eos": True, **options}
    plain = model.generate(PROMPT, spec="off", **chosen)
    assert plain.speculation is None
    for spec in ("ngram", "draft", "auto"):
        found = model.generate(PROMPT, spec=spec, **chosen)
        assert found.tokens == plain.tokens, spec
        assert found.logprobs == plain.logprobs
        assert found.finish_reason == plain.finish_reason
        assert found.speculation is not None


def test_guesses_are_made_and_right(model: localllm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    # On models this small a pass is so short that guesses hardly pay; here they cost nothing.
    monkeypatch.setattr("localllm.generation.speculation.costs.Costs.seconds", lambda self, m, unknown=1.0: 1 + 1e-6 * m)
    monkeypatch.setattr("localllm.generation.speculation.costs.Costs.reach", 16)
    monkeypatch.setattr("localllm.generation.speculation.draft.DraftModel.seconds", lambda self, n, known=0: 1e-6)
    monkeypatch.setattr("localllm.generation.speculation.venture.Venture.wanted", lambda self, investment: True)
    for options in SAMPLERS:
        chosen: dict[str, Any] = {"max_tokens": 60, "ignore_eos": True, **options}
        plain = model.generate(PROMPT, spec="off", **chosen)
        for spec in ("draft", "auto"):
            found = model.generate(PROMPT, spec=spec, **chosen)
            assert found.tokens == plain.tokens, (options, spec)
            assert found.speculation is not None
            assert found.speculation.drafted > found.speculation.accepted > 10, (options, spec)


def test_a_draft_is_closed_with_the_model_and_leaves_no_lines(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "a.gguf")
    with localllm.load(path, backend="cpu", draft=path) as model:
        draft = model._draft
        assert draft is not None
        stream = model.stream(PROMPT, max_tokens=30)
        next(stream)
        assert len(draft._lines) == 1
        stream.close()
        assert all(not line._open for line in draft._lines)
    assert not draft._open


@pytest.mark.parametrize(("spec", "match"), [("draft", "loaded without one"), ("speed", "expected one of auto, off, ngram, draft")])
def test_what_can_not_be_had_is_said(tmp_path: Path, spec: str, match: str) -> None:
    with localllm.load(tiny.write(tmp_path / "a.gguf"), backend="cpu") as model, pytest.raises(OptionError, match=match):
        model.stream(PROMPT, spec=spec)


def test_the_reference_does_not_guess(tmp_path: Path) -> None:
    with localllm.load(tiny.write(tmp_path / "a.gguf"), backend="reference") as model:
        assert model.generate(PROMPT, max_tokens=3).speculation is None
        with pytest.raises(OptionError, match="'spec' is 'ngram', but this backend's numbers depend on how many tokens"):
            model.generate(PROMPT, max_tokens=3, spec="ngram")


def test_another_vocabulary_is_refused_when_the_model_is_loaded(tmp_path: Path) -> None:
    path, other = tiny.write(tmp_path / "a.gguf"), tiny.write(tmp_path / "b.gguf", "qwen2", vocabulary="bpe")
    with pytest.raises(OptionError, match=r"'draft': token \d+ is"):
        localllm.load(path, backend="cpu", draft=other)
