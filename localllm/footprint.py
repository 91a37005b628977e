"""What a model will take of the memory, told without loading it."""

from __future__ import annotations

from dataclasses import dataclass

from localllm import backends
from localllm.archs import build
from localllm.backends.base import Options
from localllm.gguf import GGUFFile
from localllm.model.program import Attend

_CACHE_BYTES = {"cpu": 2, "reference": 4}
"""Bytes of a cached key or value: float16, float32."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """``backend``: which one was meant; ``weights``: bytes of weights and scratch in its form; ``per_token``: bytes of keys and
    values that each token of the context adds; ``context``: tokens that the model was trained for."""

    backend: str
    weights: int
    per_token: int
    context: int

    def total(self, tokens: int) -> int:
        """Bytes with so many tokens in the context."""
        return self.weights + tokens * self.per_token


def footprint(file: GGUFFile, backend: str = "auto") -> Footprint:
    """What the model of an open file needs. Raises as loading does, but for lack of memory."""
    program = build(file)
    chosen = backends.get(backend)
    widths = {op.layer: 2 * op.kv_heads * op.head_dim for op in program.ops if isinstance(op, Attend)}
    per_token = _CACHE_BYTES[chosen.name] * sum(widths.values())
    return Footprint(chosen.name, chosen.memory(program, file, Options()), per_token, program.context)
