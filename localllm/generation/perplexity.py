"""How well a model predicts a text, by llama.cpp's protocol, so that the figures can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import Float, Progress
from localllm.errors import OptionError
from localllm.generation.options import whole
from localllm.generation.stepper import Stepper
from localllm.generation.vocabulary import Vocabulary, leading


class Scorable(Protocol):
    """What is needed of a model."""

    @property
    def tokenizer(self) -> Vocabulary: ...

    def line(self) -> Stepper: ...


@dataclass(frozen=True, slots=True)
class Perplexity:
    """``ppl``: exp of the mean negative log-likelihood; ``error``: its standard error; ``per_chunk``: ppl over the windows
    up to each; ``tokens``: how many were scored."""

    ppl: float
    error: float
    per_chunk: tuple[float, ...]
    tokens: int


def perplexity(model: Scorable, text: str, *, chunks: int | None = None, n_ctx: int = 512, progress: Progress | None = None) -> Perplexity:
    """Perplexity of ``text``: tokenised whole, cut into windows of ``n_ctx`` (at most ``chunks`` of them), the second half of each scored.

    The first token of a window gives way to BOS where the tokenizer adds it. ``progress("perplexity", windows done, windows)``.
    Raises OptionError for a text shorter than one window.
    """
    *_, found = running(model, cut(model.tokenizer, text, n_ctx, chunks), progress)
    return found


def cut(tokenizer: Vocabulary, text: str, n_ctx: int = 512, chunks: int | None = None) -> list[list[int]]:
    """The windows of a text, each ready for the model."""
    whole("n_ctx", n_ctx, 6)
    whole("chunks", chunks, 1, optional=True)
    ids = tokenizer.encode(text, add_special=True)
    count = min(len(ids) // n_ctx, chunks or len(ids))
    if count == 0:
        raise OptionError(f"the text has {len(ids)} tokens; expected at least one window of {n_ctx}")
    first = leading(tokenizer)[:1]
    return [first + ids[n * n_ctx + len(first) : (n + 1) * n_ctx] for n in range(count)]


def running(model: Scorable, windows: Sequence[Sequence[int]], progress: Progress | None = None) -> Iterator[Perplexity]:
    """The perplexity so far, after each window."""
    losses = np.empty(0)
    per_chunk: list[float] = []
    for n, window in enumerate(windows, 1):
        losses = np.concatenate((losses, _losses(model, window)))
        with np.errstate(over="ignore"):
            ppl = float(np.exp(losses.mean()))
        per_chunk.append(ppl)
        if progress is not None:
            progress("perplexity", n, len(windows))
        yield Perplexity(ppl, ppl * float(losses.std()) / math.sqrt(len(losses) - 1), tuple(per_chunk), len(losses))


def _losses(model: Scorable, window: Sequence[int]) -> NDArray[np.float64]:
    """Negative log-likelihood of each token after the middle one."""
    half = len(window) // 2
    targets = iter(window[half + 1 :])
    with model.line() as line:
        return np.array([_loss(row, next(targets)) for part in line.parts(window[:-1], last=len(window) - 1 - half) for row in part])


def _loss(logits: Float, target: int) -> float:
    top = logits.max()
    return float(np.log(np.exp(logits - top).sum(dtype=np.float64)) - (float(logits[target]) - float(top)))
