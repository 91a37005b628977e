"""How far a model's predictions are from another's over the same text: llama.cpp's KL divergence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import Float, Progress
from localllm.generation.perplexity import Scorable

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Over ``tokens`` predictions: ``mean`` of the Kullback-Leibler divergence from base to model in nats, its standard ``error``,
    ``p99`` (99 % are below), ``largest``; ``same``: share of predictions whose likeliest token is the same; ``ppl`` and ``base_ppl``:
    perplexities of both."""

    mean: float
    error: float
    p99: float
    largest: float
    same: float
    ppl: float
    base_ppl: float
    tokens: int


def divergence(base: Scorable, model: Scorable, windows: Sequence[Sequence[int]], progress: Progress | None = None) -> Divergence:
    """Compare predictions of the second half of each window (``perplexity.cut`` makes them); vocabularies must be the same.

    ``progress("divergence", windows done, windows)``.
    """
    rows: list[tuple[float, bool, float, float]] = []
    for n, window in enumerate(windows, 1):
        rows += _compared(base, model, window)
        if progress is not None:
            progress("divergence", n, len(windows))
    kl, same, loss, base_loss = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    return Divergence(
        float(kl.mean()),
        float(kl.std()) / math.sqrt(max(len(kl) - 1, 1)),
        float(np.quantile(kl, 0.99)),
        float(kl.max()),
        float(same.mean()),
        float(np.exp(loss.mean())),
        float(np.exp(base_loss.mean())),
        len(kl),
    )


def _compared(base: Scorable, model: Scorable, window: Sequence[int]) -> Iterator[tuple[float, bool, float, float]]:
    """For each prediction: divergence, whether the likeliest token is the same, both losses."""
    half = len(window) // 2
    targets = iter(window[half + 1 :])
    with ExitStack() as lines:
        both = [lines.enter_context(each.line()).parts(window[:-1], last=len(window) - 1 - half) for each in (base, model)]
        for parts in zip(*both, strict=True):
            for p, q in zip(*(_logs(part) for part in parts), strict=True):
                target = next(targets)
                yield max(float(np.sum(np.exp(p) * (p - q))), 0.0), bool(p.argmax() == q.argmax()), -float(q[target]), -float(p[target])


def _logs(logits: Float) -> Doubles:
    """Logarithms of the probabilities, a row at a time."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return np.asarray(wide)
