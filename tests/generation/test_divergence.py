"""The KL divergence between two models that are functions of the line."""

from __future__ import annotations

import numpy as np
import pytest

from localllm.backends.base import Float
from localllm.generation.divergence import divergence
from localllm.generation.perplexity import cut, perplexity
from localllm.generation.stepper import Stepper
from tests.generation.fakes import FakeSession, FakeTokenizer, Rule, noise, stepper

TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom."


class FakeModel:
    def __init__(self, rule: Rule = noise) -> None:
        self.tokenizer = FakeTokenizer()
        self.session = FakeSession(rule, batch=9)

    def line(self) -> Stepper:
        return stepper(self.session)


def other(line: list[int]) -> Float:
    """Near to ``noise``, and far for some lines."""
    return np.asarray(noise(line) * np.float32(1.5 if len(line) % 3 else 0.9))


def test_by_the_definition() -> None:
    base, model = FakeModel(), FakeModel(lambda line: other(list(line)))
    windows = cut(base.tokenizer, TEXT, 20)
    seen: list[tuple[str, int, int]] = []
    found = divergence(base, model, windows, lambda *step: seen.append(step))
    expected = []
    for window in windows:
        for n in range(10, 19):
            p, q = (np.exp(rule(window[: n + 1]).astype(np.float64)) for rule in (noise, other))
            p, q = p / p.sum(), q / q.sum()
            expected.append(float((p * np.log(p / q)).sum()))
    assert found.tokens == len(expected) == 9 * len(windows)
    assert found.mean == pytest.approx(np.mean(expected)) and found.largest == pytest.approx(max(expected))
    assert found.error == pytest.approx(np.std(expected) / np.sqrt(len(expected) - 1))
    assert found.p99 == pytest.approx(np.quantile(expected, 0.99))
    assert found.same == 1
    assert found.base_ppl == pytest.approx(perplexity(base, TEXT, n_ctx=20).ppl)
    assert found.ppl == pytest.approx(perplexity(model, TEXT, n_ctx=20).ppl)
    assert seen == [("divergence", n, len(windows)) for n in range(1, len(windows) + 1)]
    assert not base.session.lines and not model.session.lines


def test_a_model_is_not_far_from_itself() -> None:
    model = FakeModel()
    found = divergence(model, model, cut(model.tokenizer, TEXT, 20))
    assert found.mean == found.largest == 0 and found.same == 1


def test_another_likeliest_token_is_counted() -> None:
    base, model = FakeModel(), FakeModel(lambda line: -noise(line))
    assert divergence(base, model, cut(base.tokenizer, TEXT, 20)).same == 0
