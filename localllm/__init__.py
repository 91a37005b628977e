"""Run language models from GGUF files on your own computer.

>>> import localllm
>>> print(localllm.generate("smollm2:135m", "Why is the sky blue?"))

Everything here is imported when it is first used, so ``import localllm`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localllm import quant
    from localllm.api import Model, generate, load
    from localllm.errors import LocalLLMError
    from localllm.generation.results import Event, Result
    from localllm.gguf import open_gguf
    from localllm.text import ChatTemplate, Tokenizer

__version__ = "0.1.0"
__all__ = ["ChatTemplate", "Event", "LocalLLMError", "Model", "Result", "Tokenizer", "generate", "load", "open_gguf", "quant"]

_HOME = {
    "ChatTemplate": "localllm.text",
    "Event": "localllm.generation.results",
    "LocalLLMError": "localllm.errors",
    "Model": "localllm.api",
    "Result": "localllm.generation.results",
    "Tokenizer": "localllm.text",
    "generate": "localllm.api",
    "load": "localllm.api",
    "open_gguf": "localllm.gguf",
}

_root = Path(__file__).resolve().parent.parent
if not Path(__file__).with_name("backends").is_dir() and (_root / "backends").is_dir():
    # A checkout made without symlinks (Git's default on Windows): the links are small text files there.
    __path__.append(str(_root))


def __getattr__(name: str) -> Any:
    if name == "quant":
        return importlib.import_module("localllm.quant")
    if name not in _HOME:
        raise AttributeError(f"module 'localllm' has no attribute {name!r}")
    # Bound, so that the next look finds it without coming here.
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
