"""Layers whose keys are too far from zero for few bits.

The bias of keys in some layers of Qwen2 is a hundred times what the rest of a key is, in a few values and the same for every token. Blocks
that such a value falls into, or is spread over, have steps in which the rest of the key drowns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.kv_types import QUANTISED
from localllm.model.program import Attend, Linear, Program

LARGE = 4.0
"""Root mean square of a head's bias from which on its layer keeps float16 keys; that of a normalised key is near 1."""


def float_keys(program: Program, kind: str, vector: Callable[[str], NDArray[np.float32]]) -> frozenset[int]:
    """The layers whose keys stay f16 where all were to be of a quantised ``kind``; ``vector``: a weight's values by its name."""
    found: set[int] = set()
    biases: dict[str, str | None] = {}
    for op in program.ops if kind in QUANTISED else ():
        if isinstance(op, Linear):
            biases[op.out] = op.bias
        elif isinstance(op, Attend) and (name := biases.get(op.k)):
            heads = vector(name)[: op.kv_heads * op.head_dim].reshape(op.kv_heads, op.head_dim)
            if np.sqrt(np.mean(np.square(heads), axis=1)).max() > LARGE:
                found.add(op.layer)
    return frozenset(found)
