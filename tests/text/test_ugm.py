"""Unigram: the best cut, against all cuts; normalisation, with a map built by hand."""

from __future__ import annotations

import struct
from itertools import product

import pytest

from localllm.errors import TokenizerError
from localllm.text import Tokenizer
from localllm.text.ugm import Charsmap
from tests.text.vocabularies import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, metadata

WORDS = {"a": -3.0, "b": -3.5, "ab": -4.0, "ba": -5.0, "abb": -6.0, "\u2581": -2.0, "\u2581a": -4.5, "bb": -8.0}
TOKENS = ["<pad>", "</s>", "<unk>", *WORDS]
SCORES = [0.0, 0.0, 0.0, *WORDS.values()]
TYPES = [CONTROL, CONTROL, UNKNOWN] + [NORMAL] * len(WORDS)


def ugm(tokens: list[str] = TOKENS, scores: list[float] = SCORES, types: list[int] = TYPES, **keys: object) -> Tokenizer:
    return Tokenizer.from_metadata(metadata("t5", tokens, scores=scores, token_type=types, **keys))


def best_of_all(text: str) -> float:
    """The best sum of scores over every way to cut the text."""
    sums = []
    for cuts in product([False, True], repeat=len(text) - 1):
        parts = [""]
        for char, cut in zip(text, (False, *cuts), strict=True):
            parts = [*parts, char] if cut else [*parts[:-1], parts[-1] + char]
        if all(part in WORDS for part in parts):
            sums.append(sum(WORDS[part] for part in parts))
    return max(sums)


@pytest.mark.parametrize("text", ["".join(t) for n in range(1, 8) for t in product("ab", repeat=n)][::3])
def test_best_cut(text: str) -> None:
    ids = ugm().encode(text, add_special=False)
    assert "".join(TOKENS[i] for i in ids) == text
    assert sum(SCORES[i] for i in ids) == best_of_all(text)


def test_unknown_characters_are_one_token_for_a_run() -> None:
    assert ugm().encode("axyzb") == [TOKENS.index("a"), 2, TOKENS.index("b"), 1]


def test_spaces() -> None:
    a, space, space_a = TOKENS.index("a"), TOKENS.index("\u2581"), TOKENS.index("\u2581a")
    assert ugm().encode(" a  a", add_special=False) == [space_a, space, space_a]
    assert ugm(add_space_prefix=True).encode("a", add_special=False) == [space_a]
    assert ugm(remove_extra_whitespaces=True).encode("  a   a  ", add_special=False) == [space_a, space_a]
    assert ugm().encode("a", add_special=False) == [a]
    assert ugm(add_space_prefix=True).decode([space_a, space_a]) == b"a a"


def test_user_defined_tokens_are_taken_first_and_kept_as_they_are() -> None:
    tokenizer = ugm([*TOKENS, "<tag>"], [*SCORES, -100.0], [*TYPES, USER_DEFINED])
    assert tokenizer.encode("a<tag>b", add_special=False) == [TOKENS.index("a"), len(TOKENS), TOKENS.index("b")]


def charsmap(entries: dict[bytes, bytes]) -> bytes:
    """A map for single bytes: the root's children at base 256, each with a value at its own base."""
    units = [0] * 1024
    units[0] = 256 << 10
    texts = b""
    for n, (byte, text) in enumerate(entries.items(), 2):
        node = 256 ^ byte[0]
        base = 256 * n ^ node
        units[node] = byte[0] | 1 << 8 | base << 10
        units[256 * n] = 1 << 31 | len(texts)
        texts += text + b"\0"
    table = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(table)) + table + texts


def test_characters_are_mapped() -> None:
    blob = charsmap({b"A": b"a", b"\t": b" "})
    assert Charsmap(blob).longest(b"xA", 1) == (b"a", 1)
    assert Charsmap(blob).longest("\u00e9".encode(), 0) == ("\u00e9".encode(), 2)
    mapped = ugm(precompiled_charsmap=[b - 256 if b > 127 else b for b in blob])
    assert mapped.encode("A\tAb") == ugm().encode("a ab")


@pytest.mark.parametrize("blob", [b"\1", struct.pack("<I", 400) + bytes(8), struct.pack("<I", 6) + bytes(16)])
def test_broken_maps_are_refused(blob: bytes) -> None:
    with pytest.raises(TokenizerError, match="precompiled_charsmap"):
        Charsmap(blob)


def test_a_map_that_points_outside_is_refused_when_it_is_used() -> None:
    far = struct.pack("<II", 4, 0x1FFFFF << 10) + b"\0"
    with pytest.raises(TokenizerError, match=r"unit \d+ of 1"):
        Charsmap(far).longest(b"a", 0)
    blob = charsmap({b"A": b"a"})
    with pytest.raises(TokenizerError, match="no replacement"):
        Charsmap(blob[:-1] + b"a").longest(b"A", 0)
