"""Byte-pair encoding (GGUF ``gpt2`` and ``gemma4``).

The ``tokenizers`` package cuts the text into words (its regular expression engine knows Unicode) and writes them in GPT-2's
byte alphabet. The merging is ours: the package's BPE takes 0.2 s to build from Qwen's 151,387 merges, at every start, and
refuses files whose merges name unknown tokens; this one is two dictionaries of what the file holds as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

from localllm.errors import TokenizerError
from localllm.text.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab, strings

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_SPACE = "\u2581"
_CACHED_WORDS = 65_536
_LONGEST_CACHED = 128


@cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: the character that stands for each byte. Printable Latin-1 is itself, the rest follows from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


class BPE:
    """The BPE of one vocabulary: ``encode`` for text without special tokens, ``piece`` for the bytes of a token."""

    def __init__(self, vocab: Vocab) -> None:
        if vocab.pre is None:
            raise TokenizerError("a BPE vocabulary without a pre-tokenizer")
        merges = strings(vocab.metadata, "tokenizer.ggml.merges")
        if merges is None and vocab.metadata.get("tokenizer.ggml.pre") != "kimi-k2":
            raise TokenizerError("tokenizer.ggml.merges: the key is missing, so words can't be put together from this vocabulary")
        self._vocab, self._pre, self._merges = vocab, vocab.pre, merges or []
        # Per instance, unlike a decorator: words repeat, vocabularies come and go.
        self._cached = lru_cache(_CACHED_WORDS)(self._word)

    def encode(self, text: str) -> list[int]:
        """The ids of a text; bytes that the vocabulary can't express are left out."""
        ids: list[int] = []
        for word, _ in self._splitter.pre_tokenize_str(text.replace(" ", _SPACE) if self._pre.escape else text):
            ids += (self._cached if len(word) <= _LONGEST_CACHED else self._word)(word)
        return ids

    def piece(self, id_: int) -> bytes:
        """The bytes of a token that is not special."""
        raw, attr = self._vocab.tokens[id_], int(self._vocab.attr[id_])
        if attr & (CONTROL | UNKNOWN | USER_DEFINED):
            return raw
        if attr & NORMAL:
            return raw.replace(_SPACE.encode(), b" ") if self._pre.escape else _from_alphabet(raw)
        return byte_value(raw) if attr & BYTE else b""

    @cached_property
    def _splitter(self) -> PreTokenizer:
        from tokenizers import Regex, pre_tokenizers

        splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in self._pre.regexes]
        alphabet = [] if self._pre.raw else [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        return pre_tokenizers.Sequence([*splits, *alphabet])

    @cached_property
    def _ranks(self) -> dict[bytes, int]:
        """The rank of each merge, written as in the file: two tokens with a space between. The first of equal ones counts."""
        merges = self._merges
        ranks = dict(zip(merges, range(len(merges)), strict=True))
        return ranks if len(ranks) == len(merges) else {raw: len(merges) - n for n, raw in enumerate(reversed(merges))}

    def _word(self, word: str) -> tuple[int, ...]:
        whole = self._vocab.ids.get(word.encode())
        if whole is not None and (self._pre.ignore_merges or (self._pre.newline_words and word[0] == "\n")):
            return (whole,)
        return tuple(i for symbol in self._merge([c.encode() for c in word]) for i in self._ids_of(symbol))

    def _merge(self, symbols: list[bytes]) -> Iterator[bytes]:
        """The symbols left when the neighbours of lowest rank, leftmost first, have been merged until none has one.

        ``symbols[i]`` is "" once it is merged into a symbol to its left; ``before`` and ``after`` link those that remain.
        """
        ranks, end = self._ranks, len(symbols)
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        keys = [a + b" " + b for a, b in pairwise(symbols)]
        heap = [(ranks[key], i, key) for i, key in enumerate(keys) if key in ranks]
        heapify(heap)
        while heap:
            _, left, key = heappop(heap)
            right = after[left]
            if right == end or not symbols[left] or symbols[left] + b" " + symbols[right] != key:
                continue
            symbols[left], symbols[right] = symbols[left] + symbols[right], b""
            after[left] = after[right]
            if after[left] < end:
                before[after[left]] = left
            for a in (before[left], left):
                if a >= 0 and after[a] < end:
                    key = symbols[a] + b" " + symbols[after[a]]
                    if key in ranks:
                        heappush(heap, (ranks[key], a, key))
        return filter(None, symbols)

    def _ids_of(self, symbol: bytes) -> list[int]:
        known = self._vocab.ids.get(symbol)
        if known is not None:
            return [known]
        found = (self._vocab.ids.get(b"<0x%02X>" % b if self._pre.raw else bytes([b])) for b in symbol)
        return [i for i in found if i is not None]


def _from_alphabet(raw: bytes) -> bytes:
    """The bytes that a token's characters stand for; a character outside the alphabet stands for itself."""
    alphabet, text = byte_alphabet(), raw.decode("utf-8", "surrogateescape")
    try:
        return bytes([alphabet[c] for c in text])
    except KeyError:
        return b"".join(bytes([alphabet[c]]) if c in alphabet else c.encode("utf-8", "surrogateescape") for c in text)


def byte_value(raw: bytes) -> bytes:
    """The byte that a token ``<0xNN>`` stands for; any other text is left as it is."""
    if len(raw) == 6 and raw[:3] == b"<0x" and raw[5:] == b">":
        try:
            return bytes([int(raw[3:5], 16)])
        except ValueError:
            return raw
    return raw
