"""Log-probabilities as the model gives them, before a sampler changes anything."""

from __future__ import annotations

import math

import numpy as np

from localllm.generation.candidates import Candidates, Float
from localllm.generation.results import Logprob


def logprob(logits: Float, token: int, n: int) -> Logprob:
    """That of a token after ``logits`` (V,), and the ``n`` likeliest tokens with theirs."""
    top = float(logits.max())
    # Exponentials in float32 are ten times as fast, and their errors too small to be told.
    total = top + math.log(np.exp(logits - np.float32(top)).sum(dtype=np.float64))
    best = Candidates(logits).best(n) if n else None
    tops = () if best is None else tuple((int(i), float(one) - total) for i, one in zip(best.names(), best.logits, strict=True))
    return Logprob(token, float(logits[token]) - total, tops)
