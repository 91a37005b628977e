from __future__ import annotations

import math

import numpy as np
import pytest

from localllm.errors import OptionError
from localllm.generation.perplexity import cut, perplexity
from localllm.generation.stepper import Stepper
from tests.generation.fakes import BOS, FakeSession, FakeTokenizer, noise, stepper

TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom."


class FakeModel:
    def __init__(self, *, bos: bool = False, batch: int = 512) -> None:
        self.tokenizer = FakeTokenizer(bos=bos)
        self.session = FakeSession(batch=batch)

    def line(self) -> Stepper:
        return stepper(self.session)


def expected(windows: list[list[int]]) -> list[list[float]]:
    losses = []
    for window in windows:
        half = len(window) // 2
        rows = []
        for n in range(half, len(window) - 1):
            logits = noise(window[: n + 1]).astype(np.float64)
            rows.append(math.log(np.exp(logits).sum()) - logits[window[n + 1]])
        losses.append(rows)
    return losses


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("batch", [512, 5])
def test_the_second_half_of_each_window_is_scored(bos: bool, batch: int) -> None:
    model = FakeModel(bos=bos, batch=batch)
    told: list[tuple[str, int, int]] = []
    found = perplexity(model, TEXT, n_ctx=16, progress=lambda *what: told.append(what))
    ids = model.tokenizer.encode(TEXT)
    windows = [ids[n : n + 16] for n in range(0, len(ids) - 15, 16)]
    if bos:
        windows = [[BOS, *window[1:]] for window in windows]
    losses = expected(windows)
    assert len(losses) == 4 and len(losses[0]) == 7
    flat = np.concatenate(losses)
    assert found.tokens == 28
    assert found.ppl == pytest.approx(math.exp(flat.mean()), rel=1e-6)
    assert found.error == pytest.approx(found.ppl * math.sqrt((np.mean(flat**2) - flat.mean() ** 2) / 27), rel=1e-5)
    assert found.per_chunk == pytest.approx([math.exp(np.concatenate(losses[: n + 1]).mean()) for n in range(4)], rel=1e-6)
    assert told == [("perplexity", n, 4) for n in range(1, 5)]
    assert not model.session.lines


def test_chunks_limits_the_windows() -> None:
    assert len(perplexity(FakeModel(), TEXT, n_ctx=16, chunks=2).per_chunk) == 2
    assert len(cut(FakeTokenizer(), TEXT, 16, 99)) == 4


def test_a_text_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(OptionError, match="78 tokens; expected at least one window of 512"):
        perplexity(FakeModel(), TEXT)


def test_windows_and_chunks_are_checked() -> None:
    for wrong in ({"n_ctx": 2}, {"chunks": 0}):
        with pytest.raises(OptionError):
            perplexity(FakeModel(), TEXT, **wrong)  # type: ignore[arg-type]
