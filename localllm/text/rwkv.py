r"""The RWKV world tokenizer (GGUF ``rwkv``): ours, as no library has it. The longest token at each place, over bytes.

The file holds each token escaped like a Python literal: ``\n \r \t \xNN``, and a backslash before what stands for itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cached_property

from localllm.text.vocab import Vocab

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LETTERS = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


class RWKV:
    """The RWKV tokenizer of one vocabulary: ``encode`` for text without special tokens, ``piece`` for a token's bytes."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._unknown = vocab.special.get("unk")

    def encode(self, text: str) -> list[int]:
        """The ids of a text; a byte that begins no token is the unknown token, or left out where there is none."""
        data, start = text.encode(), 0
        ids: list[int] = []
        while start < len(data):
            id_, length = self._longest(data, start)
            ids += [] if id_ is None else [id_]
            start += length
        return ids

    def piece(self, id_: int) -> bytes:
        """The bytes of a token."""
        return unescape(self._vocab.tokens[id_])

    def _longest(self, data: bytes, start: int) -> tuple[int | None, int]:
        for length in self._lengths.get(data[start], ()):
            id_ = self._tokens.get(data[start : start + length])
            if id_ is not None:
                return id_, length
        return self._unknown, 1

    @cached_property
    def _tokens(self) -> dict[bytes, int]:
        return {unescape(raw): i for i, raw in enumerate(self._vocab.tokens)}

    @cached_property
    def _lengths(self) -> dict[int, tuple[int, ...]]:
        """The lengths that tokens beginning with a byte have, falling."""
        lengths: defaultdict[int, set[int]] = defaultdict(set)
        for token in self._tokens:
            if token:
                lengths[token[0]].add(len(token))
        return {first: tuple(sorted(found, reverse=True)) for first, found in lengths.items()}


def unescape(raw: bytes) -> bytes:
    r"""The bytes that an escaped token stands for; a broken escape stands for its own characters."""
    return _ESCAPE.sub(lambda m: bytes([int(m[1][1:], 16)]) if len(m[1]) == 3 else _LETTERS.get(m[1], m[1]), raw)
