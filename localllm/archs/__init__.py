"""Model families: metadata of a file -> ModelConfig -> Program.

A family is a module of this package with one function, ``configure(keys: Keys) -> ModelConfig``, and an entry in FAMILIES, under the
name that files have as ``general.architecture``. It is imported when a file asks for it. To add one:

1. Write ``localllm/archs/NAME.py``. Most decoders are one call of ``decoder(...)`` with what is special as arguments; what differs
   from layer to layer is set afterwards with ``dataclasses.replace``, as in gemma3.py.
2. If the family has a part that no ModelConfig describes, add a field to localllm/model/config.py and its meaning to the one emitter,
   localllm/model/emit.py. Fields say what is computed ("post_norms"), never for whom.
3. Enter it in FAMILIES, and in the tests' ``tiny.FAMILIES``: every general test then covers it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from localllm.archs.keys import Keys
from localllm.errors import GGUFError, UnsupportedError
from localllm.model.config import ModelConfig
from localllm.model.emit import emit
from localllm.model.program import Program
from localllm.model.weights import ModelFile, Weights, brief, label

__all__ = ["FAMILIES", "build", "configure"]

FAMILIES = {"gemma3": "gemma3", "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""Architecture -> module."""


def build(file: ModelFile) -> Program:
    """The Program of an open GGUF file.

    Raises UnsupportedError for an unknown architecture or variant, GGUFError for metadata or tensors that don't make a model.
    """
    config = configure(file)
    weights = Weights(file)
    program = emit(config, weights)
    weights.finish(config.architecture, len(config.layers), config.nextn_predict_layers)
    return program


def configure(file: ModelFile) -> ModelConfig:
    """The file's ModelConfig; its tensors are not looked at yet. Raises as ``build`` does."""
    keys = Keys(file)
    family = _family(keys)
    if not file.tensors:
        raise GGUFError(f"{label(file)}: holds no weights, only metadata (a vocabulary?); a model is needed here")
    return family(keys)


def _family(keys: Keys) -> Callable[[Keys], ModelConfig]:
    module = FAMILIES.get(keys.architecture)
    if module is None:
        import difflib

        near = difflib.get_close_matches(keys.architecture[:60], FAMILIES, n=2)
        known = f"the nearest known: {', '.join(near)}" if near else f"known: {', '.join(sorted(FAMILIES))}"
        raise UnsupportedError(f"{label(keys.file)}: architecture {brief(keys.architecture)} is not supported; {known}")
    found: Callable[[Keys], ModelConfig] = importlib.import_module(f"localllm.archs.{module}").configure
    return found
