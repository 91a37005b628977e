"""What a model will take of the memory, told without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localllm import backends
from localllm.archs import build
from localllm.backends.base import Options
from localllm.backends.line import ROLLBACK
from localllm.gguf import GGUFFile


@dataclass(frozen=True, slots=True)
class Footprint:
    """``backend``: which one was meant; ``weights``: bytes of weights and scratch in its form; ``per_token``: bytes of keys and
    values that each token of the context adds; ``windows``: the same of layers that keep only some tokens, by how many they keep;
    ``context``: tokens that the model was trained for."""

    backend: str
    weights: int
    per_token: int
    windows: Mapping[int, int]
    context: int

    def total(self, tokens: int) -> int:
        """Bytes with so many tokens in the context."""
        return self.weights + self.cache(tokens)

    def cache(self, tokens: int) -> int:
        """Bytes of the keys and values of so many tokens."""
        return tokens * self.per_token + sum(min(tokens, kept) * size for kept, size in self.windows.items())


def footprint(file: GGUFFile, backend: str = "auto", *, cache_type_k: str | None = None, cache_type_v: str | None = None) -> Footprint:
    """What the model of an open file needs, with types of keys and values as ``load`` takes them. Raises as loading does, but for lack of
    memory."""
    program = build(file)
    chosen = backends.get(backend)
    options = Options(kv_type_k=cache_type_k, kv_type_v=cache_type_v)
    by_window = chosen.cache(program, file, options)
    windows = {window + ROLLBACK: size for window, size in by_window.items() if window}
    return Footprint(chosen.name, chosen.memory(program, file, options), by_window.get(0, 0), windows, program.context)
