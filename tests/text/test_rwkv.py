"""The RWKV tokenizer: escapes and longest matches."""

from __future__ import annotations

import pytest

from localllm.text import Tokenizer
from localllm.text.rwkv import unescape
from tests.text.vocabularies import CONTROL, NORMAL, metadata

TOKENS = ["<s>", "a", "ab", "abc", "\\n", "\\n\\n", "\\xe4\\xb8", "\\xad", "\\\\", " a", "d"]


def rwkv(**keys: object) -> Tokenizer:
    types = [CONTROL] + [NORMAL] * (len(TOKENS) - 1)
    return Tokenizer.from_metadata(metadata("rwkv", TOKENS, token_type=types, bos_token_id=0, eos_token_id=0, **keys))


def test_longest_match_at_each_place() -> None:
    assert rwkv().encode("abcab a\n\n\n\\") == [3, 2, 9, 5, 4, 8]
    assert rwkv().encode("\u4e2d") == [6, 7]
    assert rwkv().decode([6, 7, 4, 8]) == "\u4e2d\n\\".encode()


def test_what_begins_no_token() -> None:
    assert rwkv().encode("axa") == [1, 1]
    assert rwkv(unknown_token_id=10).encode("axa") == [1, 10, 1]


def test_nothing_is_added() -> None:
    assert rwkv(add_bos_token=True).encode("a") == [1]


@pytest.mark.parametrize(
    ("escaped", "raw"),
    [(b"\\t\\r\\n", b"\t\r\n"), (b"\\x00\\xfF", b"\0\xff"), (b"\\\\x41", b"\\x41"), (b"\\'\\q", b"'q"), (b"\\xZ1\\", b"xZ1\\")],
)
def test_unescape(escaped: bytes, raw: bytes) -> None:
    assert unescape(escaped) == raw
