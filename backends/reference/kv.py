"""What becomes of keys and values that are kept in fewer bits: there and back, with the formats of ``localllm.quant``."""

from __future__ import annotations

from functools import cache

import numpy as np

from localllm import quant
from localllm.backends.base import Float


def kept(x: Float, kind: str, d: int, *, key: bool = False) -> Float:
    """x (T, K*d) as it comes back. Each head is padded to whole blocks; keys are rotated before, and back."""
    if kind == "f32":
        return x
    if kind == "f16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    heads = x.reshape(len(x), -1, d)
    turn = rotation(d) if key else None
    turned = heads if turn is None else heads @ turn
    padded = np.pad(turned, [(0, 0), (0, 0), (0, -d % 32)])
    back = quant.dequantize(quant.quantize(padded, kind.upper()), kind.upper())[..., :d]
    return np.asarray((back if turn is None else back @ turn.T).reshape(x.shape), np.float32)


@cache
def rotation(d: int) -> Float:
    """(d, d) float32, orthogonal: Hadamard's matrix of the largest power of two that divides d, over the diagonal; nothing below 16."""
    n, h = d & -d, np.ones((1, 1), np.float32)
    if n < 16:
        return np.eye(d, dtype=np.float32)
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return np.kron(np.eye(d // n, dtype=np.float32), h / np.float32(np.sqrt(n)))
