"""WordPiece (GGUF ``bert``): ours, as llama.cpp normalises text in its own way and the rest is a loop."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from localllm.text.spm import SPACE, unescaped_piece
from localllm.text.vocab import Vocab

_CACHED_WORDS = 65_536
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WPM:
    """The WordPiece of one vocabulary: ``encode`` for text without special tokens, ``piece`` for the bytes of a token."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._lower = vocab.flag("normalizer.lowercase", True)
        self._strip = vocab.flag("normalizer.strip_accents", self._lower)
        self._tokens = {raw.decode("utf-8", "surrogateescape"): i for i, raw in enumerate(vocab.tokens)}
        self._longest = max(map(len, self._tokens))
        self._unknown = tuple(vocab.special[role] for role in ("unk",) if role in vocab.special)
        # Per instance, unlike a decorator: words repeat, vocabularies come and go.
        self._ids_of = lru_cache(_CACHED_WORDS)(self._pieces)

    def encode(self, text: str) -> list[int]:
        """The ids of a text: each word as its longest tokens from the left, or the unknown token."""
        return [i for word in self.words(text) for i in self._ids_of(word)]

    def piece(self, id_: int) -> bytes:
        """The bytes of a token that is not special."""
        return unescaped_piece(self._vocab, id_)

    def words(self, text: str) -> list[str]:
        """The words of a text: cut at white space, punctuation and Chinese characters alone, case and accents removed."""
        out: list[str] = []
        for char in text:
            self._spaced(unicodedata.normalize("NFD", char)[0] if self._strip else char, out)
        return "".join(out).split("\n")

    def _spaced(self, char: str, out: list[str]) -> None:
        category = unicodedata.category(char)
        if _is_space(char):
            out.append("\n")
        elif char == "\ufffd" or category in ("Cc", "Cf", "Co", "Cs") or (self._strip and category[0] == "M"):
            return
        else:
            plain = char.lower()[0] if self._lower else char
            alone = category[0] == "P" or (category[0] == "S" and char < "\x7f") or _is_chinese(char)
            out.append(f"\n{plain}\n" if alone else plain)

    def _pieces(self, word: str) -> tuple[int, ...]:
        if not word:
            return ()
        text, start = SPACE + word, 0
        ids: list[int] = []
        while start < len(text):
            for end in range(min(len(text), start + self._longest), start, -1):
                known = self._tokens.get(text[start:end])
                if known is not None:
                    ids.append(known)
                    start = end
                    break
            else:
                return self._unknown
        return tuple(ids)


def _is_space(char: str) -> bool:
    # str.isspace also takes the four separators U+001C to U+001F.
    return char.isspace() and not "\x1c" <= char <= "\x1f"


def _is_chinese(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _CHINESE)
