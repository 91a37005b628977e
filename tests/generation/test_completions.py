"""On the cpu backend several answers are, bit for bit, what each is alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import localllm
from tests import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[localllm.Model]:
    path = tiny.write(
        tmp_path_factory.mktemp("models") / "m.gguf", type="F16", embed=60, heads=3, kv_heads=1, ff=100, bias=True, context=512
    )
    with localllm.load(path, backend="cpu") as model:
        yield model


@pytest.mark.parametrize("prompt", [3, 70, 200])
@pytest.mark.parametrize(("n", "logprobs"), [(2, None), (5, None), (5, 1)])
def test_each_answer_is_what_it_would_be_alone(model: localllm.Model, prompt: int, n: int, logprobs: int | None) -> None:
    # Prompts that end inside a page of the cache and span some; answers that leave their shared page;
    # rows of the likeliest tokens and, for log-probabilities, of all logits.
    ids = [3 + k % 200 for k in range(prompt)]
    options: dict[str, Any] = {"seed": 5, "max_tokens": 80, "temperature": 1.3, "logprobs": logprobs, "ignore_eos": True}
    together = model.generate(ids, n=n, **options)
    for result in together:
        alone = model.generate(ids, completion=result.completion, **options)
        assert (result.tokens, result.text, result.logprobs) == (alone.tokens, alone.text, alone.logprobs)
    assert len({result.tokens for result in together}) == n
