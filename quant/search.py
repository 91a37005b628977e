"""Scales for groups of values, found by trying some and solving for the best fit of the codes that each gives.

Groups lie on the last axis. Weighted least squares: ``weight`` says how much each value's error counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from localllm.quant.bits import reciprocal
from localllm.quant.blocks import Float


def importance(x: Float) -> Float:
    """A weight for each value of groups x (..., m): large values count more, small ones still do."""
    weight: Float = np.sqrt(np.square(x).mean(axis=-1, keepdims=True)) + np.abs(x)
    return weight


def fit_scale(x: Float, weight: Float, snap: Callable[[Float], Float], targets: Iterable[float]) -> Float:
    """x (..., m) ~ scale * snap(x / scale) -> scale (...).

    ``snap`` takes values to the nearest level of the format; each of ``targets`` is tried as the place among the levels
    of the value farthest from zero.
    """
    peak = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    inverse_peak = reciprocal(peak)
    best = np.zeros(x.shape[:-1], np.float32)
    gain = np.zeros_like(best)
    for target in targets:
        level = snap(x * (inverse_peak * np.float32(target)))
        cross, square = np.sum(weight * x * level, axis=-1), np.sum(weight * level * level, axis=-1)
        # The error is sum(w x^2) - gain.
        scale = cross * reciprocal(square)
        better = cross * scale > gain
        best, gain = np.where(better, scale, best), np.where(better, cross * scale, gain)
    return best


def fit_affine(x: Float, weight: Float, top: int, targets: Iterable[float]) -> tuple[Float, Float]:
    """x (..., m) ~ scale * q - low with q in [0, top] -> scale (...) >= 0, low (...) >= 0.

    Each of ``targets`` is tried as the place among the codes of the largest value.
    """
    low = np.minimum(x.min(axis=-1), 0)
    span = reciprocal(x.max(axis=-1) - low)
    best_scale, best_low = np.zeros_like(low), -low
    least = _error(x, weight, np.zeros_like(x), best_scale, best_low)
    for target in targets:
        codes = np.clip(np.rint((x - low[..., None]) * (span * np.float32(target))[..., None]), 0, top)
        scale, minus = _solve(x, weight, codes)
        error = _error(x, weight, codes, scale, minus)
        better = error < least
        least = np.where(better, error, least)
        best_scale, best_low = np.where(better, scale, best_scale), np.where(better, minus, best_low)
    return best_scale, best_low


def _solve(x: Float, weight: Float, codes: Float) -> tuple[Float, Float]:
    """The scale and low of least error for these codes; low is kept from falling below zero, which the formats can't hold."""
    w, wx, wq = weight.sum(axis=-1), (weight * x).sum(axis=-1), (weight * codes).sum(axis=-1)
    wqq, wqx = (weight * codes * codes).sum(axis=-1), (weight * codes * x).sum(axis=-1)
    determinant = w * wqq - wq * wq
    inverse = reciprocal(determinant)
    scale, low = (w * wqx - wx * wq) * inverse, (wq * wqx - wqq * wx) * inverse
    # With codes that are all the same, up to rounding, only one of the two can be told.
    alone, single = wqx * reciprocal(wqq), (low < 0) | (determinant <= np.float32(1e-5) * w * wqq)
    return np.maximum(np.where(single, alone, scale), 0), np.where(single, np.float32(0), low)


def _error(x: Float, weight: Float, codes: Float, scale: Float, low: Float) -> Float:
    error: Float = (weight * np.square(scale[..., None] * codes - low[..., None] - x)).sum(axis=-1)
    return error
