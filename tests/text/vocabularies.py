"""Vocabularies that tests build: metadata as the GGUF reader gives it, and one whose tokens show where words were cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from localllm.text.bpe import byte_alphabet

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
BYTES = [f"<0x{b:02X}>" for b in range(256)]
_LETTERS = {b: c for c, b in byte_alphabet().items()}


def metadata(model: str, tokens: Iterable[str | bytes], **keys: Any) -> dict[str, Any]:
    """The ``tokenizer.ggml.*`` keys of a vocabulary; arrays of numbers may be given as lists."""
    found = {"model": model, "tokens": list(tokens), **keys}
    arrays = {"token_type": np.int32, "scores": np.float32, "precompiled_charsmap": np.int8}
    return {f"tokenizer.ggml.{k}": np.asarray(v, arrays[k]) if k in arrays else v for k, v in found.items()}


def spelled(text: str) -> str:
    """A text in GPT-2's byte alphabet."""
    return "".join(_LETTERS[b] for b in text.encode())


def bpe(merges: Iterable[str], pre: str = "gpt-2", extra: Iterable[str] = (), **keys: Any) -> dict[str, Any]:
    """A byte-level BPE vocabulary: all bytes, what the merges make, and further tokens."""
    merges = list(merges)
    tokens = dict.fromkeys([*_LETTERS.values(), *(m.replace(" ", "") for m in merges), *extra])
    return metadata("gpt2", tokens, pre=pre, merges=merges, **{"bos_token_id": 0, "eos_token_id": 0, **keys})


def pairs(alphabet: str, pre: str) -> dict[str, Any]:
    """A vocabulary in which any two characters of the alphabet make a token, so that every cut between words shows.

    Merges put each character together first; then pairs, in an order that is neither the alphabet's nor its reverse.
    """
    raw = pre in ("gemma4", "granite-embed-multi-311m", "sarvam-moe")
    units = [c.replace(" ", "\u2581") if raw else spelled(c) for c in alphabet if not (raw and c == "\n")]
    inner = [] if raw else [f"{u[:n]} {u[n]}" for u in units for n in range(1, len(u))]
    couples = [(a, b) for a in units for b in units]
    couples = [couples[n * 7919 % len(couples)] for n in range(len(couples))]
    merges = list(dict.fromkeys([*inner, *(f"{a} {b}" for a, b in couples)]))
    first = [*BYTES, "\n", *units] if raw else list(_LETTERS.values())
    tokens = list(dict.fromkeys([*first, *(m.replace(" ", "") for m in merges)]))
    types = [BYTE] * 256 + [NORMAL] * (len(tokens) - 256) if raw else [NORMAL] * len(tokens)
    return metadata(
        "gemma4" if pre == "gemma4" else "gpt2", tokens, pre=pre, merges=merges, token_type=types, bos_token_id=5, eos_token_id=6
    )
