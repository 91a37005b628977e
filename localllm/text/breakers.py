"""Where a text can begin inside tokens: what DRY needs to find sequence breakers in ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localllm.text.tokenizer import Tokenizer

LONGEST, TAIL = 40, 20
"""Bytes of a breaker that count, and ids behind its first one, as in llama.cpp."""


def breakers(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Token -> the ids that complete one of the texts behind it, in each way that there is: () where the token holds all of it.

    Looks at every token, which takes some tenths of a second for a large vocabulary.
    """
    pieces = list(tokenizer.pieces())
    found: dict[int, dict[tuple[int, ...], None]] = {}
    for text in texts:
        for token, tail in _starts(tokenizer, pieces, text.encode()[:LONGEST]):
            found.setdefault(token, {})[tail] = None
    return {token: tuple(tails) for token, tails in found.items()}


def _starts(tokenizer: Tokenizer, pieces: list[bytes], text: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    whole = [token for token, piece in enumerate(pieces) if text in piece]
    yield from ((token, ()) for token in whole)
    known = set(whole)
    for n in range(1, len(text)):
        start, rest = text[:n], text[n:].decode("utf-8", "replace")
        ends = [token for token, piece in enumerate(pieces) if piece.endswith(start) and token not in known]
        if ends:
            tail = tuple(tokenizer.encode(rest, add_special=False)[:TAIL])
            yield from ((token, tail) for token in ends)
