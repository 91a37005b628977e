"""WordPiece: normalisation, longest tokens from the left, and the unknown word."""

from __future__ import annotations

import pytest

from localllm.errors import TokenizerError
from localllm.text import Tokenizer
from tests.text.vocabularies import CONTROL, NORMAL, metadata

TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "\u2581un",
    "\u2581hello",
    "able",
    "a",
    "ffa",
    "\u2581!",
    "\u2581,",
    "\u2581\u4e2d",
    "\u2581\u6587",
    "\u2581cafe",
    "\u2581Cafe",
]
SPECIAL = {"unknown_token_id": 1, "bos_token_id": 2, "seperator_token_id": 3, "padding_token_id": 0}


def wpm(**keys: object) -> Tokenizer:
    types = [CONTROL] * 4 + [NORMAL] * (len(TOKENS) - 4)
    return Tokenizer.from_metadata(metadata("bert", TOKENS, token_type=types, **{**SPECIAL, **keys}))


def words(text: str) -> list[str]:
    return [TOKENS[i] for i in wpm().encode(text, add_special=False)]


def test_longest_tokens_or_unknown() -> None:
    assert words("unaffable") == ["[UNK]"]
    assert words("unable") == ["\u2581un", "able"]
    assert words("unffaable hello") == ["\u2581un", "ffa", "able", "\u2581hello"]


def test_normalisation() -> None:
    assert words("  HELLO,hello!\t") == ["\u2581hello", "\u2581,", "\u2581hello", "\u2581!"]
    assert words("caf\u00e9 cafe\u0301") == ["\u2581cafe", "\u2581cafe"]
    assert words("\u4e2d\u6587") == ["\u2581\u4e2d", "\u2581\u6587"]
    assert words("hel\u200blo\0 \ufffd") == ["\u2581hello"]


def test_case_may_matter() -> None:
    keys = {"normalizer.lowercase": False}
    assert wpm(**keys).encode("Cafe", add_special=False) == [TOKENS.index("\u2581Cafe")]
    # Accents stay where case does.
    assert wpm(**keys).encode("Caf\u00e9", add_special=False) == [1]
    assert wpm(**keys, **{"normalizer.strip_accents": True}).encode("Caf\u00e9", add_special=False) == [TOKENS.index("\u2581Cafe")]


def test_framed_and_decoded() -> None:
    tokenizer = wpm()
    assert tokenizer.encode("hello!") == [2, TOKENS.index("\u2581hello"), TOKENS.index("\u2581!"), 3]
    assert tokenizer.encode("") == [2, 3]
    assert tokenizer.decode(tokenizer.encode("unable, hello!")) == b" unable, hello!"
    assert tokenizer.encode("[SEP]", add_special=False, parse_special=True) == [3]


def test_separator_is_needed() -> None:
    with pytest.raises(TokenizerError, match="adds a sep token"):
        Tokenizer.from_metadata(metadata("bert", ["a", "b"], bos_token_id=0))
