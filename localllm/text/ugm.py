"""Unigram (GGUF ``t5``): ours, since llama.cpp's scores and normalisation agree with no library to the last case.

The best cut of a text is the one whose tokens' scores (log probabilities) have the greatest sum, found by one pass from the
left that keeps the best cut up to each character (Viterbi).
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cached_property
from typing import Any

import numpy as np

from localllm.errors import TokenizerError
from localllm.text.spm import SPACE, unescaped_piece
from localllm.text.vocab import NORMAL, UNUSED, USER_DEFINED, Vocab

_UNKNOWN_PENALTY = 10.0
_LONGEST_SEQUENCE = 256  # no character composes from more; a table that loops can't hold us


class UGM:
    """The unigram model of one vocabulary: ``encode`` for text without special tokens, ``piece`` for a token's bytes."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._unknown = vocab.special.get("unk", 0)
        self._merge_spaces = vocab.flag("remove_extra_whitespaces", False)
        self._charsmap = Charsmap(_charsmap_bytes(vocab.metadata.get("tokenizer.ggml.precompiled_charsmap")))
        normal = vocab.attr & NORMAL != 0
        self._unknown_score = (float(vocab.scores[normal].min()) if normal.any() else 0.0) - _UNKNOWN_PENALTY

    def encode(self, text: str) -> list[int]:
        """The ids of a text; characters that no token covers are the unknown token, one for a run of them."""
        text = self.normalize(text)
        best, back = [0.0] + [-math.inf] * len(text), [(0, 0)] * (len(text) + 1)
        tokens, lengths, scores = self._tokens, self._lengths, self._scores
        for start, char in enumerate(text):
            base, single = best[start], False
            for length in lengths.get(char, ()):
                id_ = tokens.get(text[start : start + length])
                if id_ is None or start + length > len(text):
                    continue
                single = single or length == 1
                if base + scores[id_] > best[start + length]:
                    best[start + length], back[start + length] = base + scores[id_], (id_, start)
            if not single and base + self._unknown_score > best[start + 1]:
                best[start + 1], back[start + 1] = base + self._unknown_score, (self._unknown, start)
        return self._path(back)

    def piece(self, id_: int) -> bytes:
        """The bytes of a token that is not special."""
        return unescaped_piece(self._vocab, id_)

    def normalize(self, text: str) -> str:
        """The text as the model was trained on it: characters mapped, spaces written as U+2581, merged and put in front."""
        out: list[str] = []
        prefix, in_word = self._vocab.add_space_prefix, False
        for char in self._mapped(text):
            if char == " ":
                in_word = False
                out += [] if self._merge_spaces else [SPACE]
                continue
            if not in_word and (prefix or self._merge_spaces):
                out.append(SPACE)
                prefix = False
            in_word = True
            out.append(char)
        return "".join(out)

    def _mapped(self, text: str) -> str:
        data, out, start = text.encode(), bytearray(), 0
        while start < len(data):
            kept = next((t for t in self._user_defined.get(data[start], ()) if data.startswith(t, start)), None)
            piece, used = (kept, len(kept)) if kept else self._charsmap.longest(data, start)
            out += piece
            start += used
        return out.decode("utf-8", "replace")

    def _path(self, back: list[tuple[int, int]]) -> list[int]:
        ids: list[int] = []
        end = len(back) - 1
        while end > 0:
            id_, end = back[end]
            if not (ids and id_ == self._unknown == ids[-1]):
                ids.append(id_)
        return ids[::-1]

    @cached_property
    def _tokens(self) -> dict[str, int]:
        vocab = self._vocab
        return {vocab.tokens[i].decode("utf-8", "surrogateescape"): i for i in vocab.with_attr(NORMAL | USER_DEFINED | UNUSED)}

    @cached_property
    def _lengths(self) -> dict[str, tuple[int, ...]]:
        """The lengths that tokens beginning with a character have, rising."""
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for token in self._tokens:
            lengths[token[0]].add(len(token))
        return {char: tuple(sorted(found)) for char, found in lengths.items()}

    @cached_property
    def _scores(self) -> list[float]:
        user = self._vocab.attr & USER_DEFINED != 0
        return [float(x) for x in np.where(user, 0.0, self._vocab.scores.astype(np.float64))]

    @cached_property
    def _user_defined(self) -> dict[int, list[bytes]]:
        """The user-defined tokens by their first byte, longest first."""
        groups: defaultdict[int, list[bytes]] = defaultdict(list)
        for i in self._vocab.with_attr(USER_DEFINED):
            groups[self._vocab.tokens[i][0]].append(self._vocab.tokens[i])
        return {first: sorted(group, key=len, reverse=True) for first, group in groups.items()}


def _charsmap_bytes(value: Any) -> bytes:
    if value is None:
        return b""
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TokenizerError("tokenizer.ggml.precompiled_charsmap: an array of bytes was expected")
    return array.astype(np.uint8).tobytes()


class Charsmap:
    """Sentencepiece's precompiled map of byte sequences to their normal form.

    A uint32 size, a table of that many bytes, then the replacements, each ended by a NUL. The table is an XOR-compressed
    double array: a unit holds the byte that leads to it (bits 0 to 7), whether a value follows (8) and the base of its
    children (10 to 30, times 256 if bit 9 is set); the child for byte ``c`` is at ``base ^ c``; a unit with bit 31 is a value.
    """

    def __init__(self, blob: bytes) -> None:
        size = int.from_bytes(blob[:4], "little")
        if blob and (len(blob) <= 4 + size or size % 4):
            raise TokenizerError(f"tokenizer.ggml.precompiled_charsmap: {len(blob)} bytes can't hold a table of {size} bytes")
        self._units: list[int] = np.frombuffer(blob[4 : 4 + size], "<u4").tolist()
        self._replacements = blob[4 + size :]

    def longest(self, data: bytes, start: int) -> tuple[bytes, int]:
        """What the longest known sequence at ``start`` becomes, and its length; else the character there, unchanged."""
        found = None
        node = _base(self._units[0]) if self._units else 0
        for used, byte in enumerate(data[start : start + _LONGEST_SEQUENCE] if self._units else b"", 1):
            node ^= byte
            unit = self._unit(node)
            if byte == 0 or unit & 0x800000FF != byte:
                break
            node ^= _base(unit)
            if unit >> 8 & 1:
                found = self._replacement(self._unit(node) & 0x7FFFFFFF), used
        return found or _character(data, start)

    def _unit(self, node: int) -> int:
        if node >= len(self._units):
            raise TokenizerError(f"tokenizer.ggml.precompiled_charsmap: unit {node} of {len(self._units)} is referred to")
        return self._units[node]

    def _replacement(self, offset: int) -> bytes:
        end = self._replacements.find(b"\0", offset)
        if end < 0:
            raise TokenizerError(f"tokenizer.ggml.precompiled_charsmap: no replacement ends behind {offset}")
        return self._replacements[offset:end]


def _base(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)


def _character(data: bytes, start: int) -> tuple[bytes, int]:
    end = start + 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return data[start:end], end - start
