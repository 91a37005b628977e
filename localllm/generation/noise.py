"""The only randomness there is: Gumbel noise that is a function of the seed and of where it is used.

A token drawn by adding independent Gumbel noise to log-probabilities and taking the largest has exactly those
probabilities (Gumbel 1954; Maddison et al. 2014). The noise comes from a counter hash in SplitMix64's form (Steele et al.
2014), so that no state runs along: a step can be repeated, skipped or computed elsewhere and draws the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1
_HANDFUL = 32
_ONE, _STEP, _A, _B, _11, _27, _30, _31 = (np.uint64(n) for n in (1, _GOLDEN, _FIRST, _SECOND, 11, 27, 30, 31))


def key(seed: int, completion: int, count: int) -> int:
    """The place of a draw in 64 bits: the seed, which completion of the prompt it is, and the tokens ever in its line."""
    return _mix(_line(seed, completion) + count * _GOLDEN)


@lru_cache(16)
def _line(seed: int, completion: int) -> int:
    return _mix(_mix(seed + _GOLDEN) + completion * _GOLDEN)


def gumbel(place: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Noise of these token ids (n,) at a place that ``key`` made -> (n,)."""
    bits = np.uint64(place) + (ids.astype(np.uint64) + _ONE) * _STEP
    bits = (bits ^ (bits >> _30)) * _A
    bits = (bits ^ (bits >> _27)) * _B
    bits ^= bits >> _31
    # 53 bits and a half: never 0, never 1, so both logarithms are finite.
    uniform = ((bits >> _11).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def of_few(place: int, ids: Sequence[int]) -> list[float]:
    """Noise of these token ids: ``gumbel`` but for roundings of logarithms. A handful is faster in Python's numbers."""
    if len(ids) > _HANDFUL:
        many: list[float] = gumbel(place, np.array(ids)).tolist()
        return many
    found = [_mix(place + (token + 1) * _GOLDEN) for token in ids]
    return [-math.log(-math.log(((bits >> 11) + 0.5) * 2.0**-53)) for bits in found]


def coin(place: int) -> float:
    """A number above 0 and below 1 that is independent of the noise of all tokens at a place."""
    return ((_mix(place) >> 11) + 0.5) * 2.0**-53  # where the token -1 would be


def _mix(value: int) -> int:
    value &= _MASK
    value = (value ^ (value >> 30)) * _FIRST & _MASK
    value = (value ^ (value >> 27)) * _SECOND & _MASK
    return value ^ (value >> 31)
