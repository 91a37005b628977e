"""SentencePiece BPE: the library is led to llama.cpp's rule, written out here as it stands."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localllm.errors import TokenizerError
from localllm.text import Tokenizer
from tests.text.vocabularies import BYTE, BYTES, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, metadata

WORDS = {
    "\u2581": -9,
    "a": -8,
    "b": -8,
    "c": -8,
    "ab": -1,
    "bc": -2,
    "abc": -3,
    "\u2581a": -2,
    "\u2581ab": -5,
    "aa": -2,
    "<": -9,
    "s": -9,
    ">": -9,
    "<s": -1,
}
TOKENS = ["<unk>", "<s>", "</s>", *BYTES, *WORDS]
SCORES = [0.0] * 259 + [float(score) for score in WORDS.values()]
TYPES = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(WORDS)


def spm(tokens: list[str] = TOKENS, scores: list[float] = SCORES, types: list[int] = TYPES, **keys: object) -> Tokenizer:
    return Tokenizer.from_metadata(metadata("llama", tokens, scores=scores, token_type=types, **keys))


def by_the_rule(text: str) -> list[int]:
    """Merge the pair whose union has the highest score, leftmost first, whatever type the union's token has."""
    ids = {token: i for i, token in enumerate(TOKENS)}
    symbols = list(text.replace(" ", "\u2581"))
    while True:
        unions = [(SCORES[ids[a + b]], -n) for n, (a, b) in enumerate(pairwise(symbols)) if a + b in ids]
        if not unions:
            return [i for s in symbols for i in ([ids[s]] if s in ids else [ids[BYTES[b]] for b in s.encode()])]
        n = -max(unions)[1]
        symbols[n : n + 2] = [symbols[n] + symbols[n + 1]]


@given(st.text(st.sampled_from("abc <s>\u00e9\u2581"), max_size=24))
@settings(max_examples=300, deadline=None)
def test_follows_the_rule(text: str) -> None:
    assert _PLAIN.encode(text, add_special=False) == by_the_rule(text)


_PLAIN = spm(add_space_prefix=False)


def test_space_prefix_only_behind_special_tokens() -> None:
    tokenizer = spm()
    a, space_a = TOKENS.index("a"), TOKENS.index("\u2581a")
    assert tokenizer.encode("a") == [1, space_a]
    assert tokenizer.encode("a</s>a", parse_special=True) == [1, space_a, 2, space_a]
    assert spm(add_space_prefix=False).encode("a</s>a", parse_special=True) == [1, a, 2, a]
    assert tokenizer.decode([space_a, space_a]) == b"a a"
    assert tokenizer.decode([1, space_a], special=True) == b"<s> a"


def test_text_that_spells_a_control_token_may_become_it_only_by_merges() -> None:
    # "<s" is a token, so llama.cpp's rule leads to "<s>"; nothing leads to "</s>".
    assert _PLAIN.encode("<s>", add_special=False) == [1]
    assert 2 not in _PLAIN.encode("</s>", add_special=False)


def test_user_defined_and_unused_tokens() -> None:
    tokenizer = spm([*TOKENS, "<tag>", "cab"], [*SCORES, 0.0, 5.0], [*TYPES, USER_DEFINED, UNUSED], add_space_prefix=False)
    tag, cab = len(TOKENS), len(TOKENS) + 1
    assert tokenizer.encode("a<tag>b", add_special=False) == [TOKENS.index("a"), tag, TOKENS.index("b")]
    assert tokenizer.encode("cab", add_special=False) == [cab]
    assert (tokenizer.piece(tag), tokenizer.piece(cab)) == (b"<tag>", b"")


def test_vocabulary_without_all_bytes() -> None:
    tokens = [t for t in TOKENS if t != "<0x0A>"]
    keep = [i for i, t in enumerate(TOKENS) if t != "<0x0A>"]
    tokenizer = spm([*tokens, "\n"], [SCORES[i] for i in keep] + [-1.0], [TYPES[i] for i in keep] + [NORMAL], add_space_prefix=False)
    assert tokenizer.decode(tokenizer.encode("ab\n\u00e9", add_special=False)) == "ab\n\u00e9".encode()
    few = spm(["<unk>", "<s>", "</s>", "a"], [0.0] * 4, [UNKNOWN, CONTROL, CONTROL, NORMAL], add_space_prefix=False)
    assert few.encode("a\u00e9\u00e9a", add_special=False) == [3, 0, 3]


def test_tokens_that_the_library_refuses() -> None:
    tokenizer = spm([*TOKENS, "a\0b", ""], [*SCORES, 9.0, 9.0], [*TYPES, NORMAL, NORMAL], add_space_prefix=False)
    assert tokenizer.decode(tokenizer.encode("a\0b", add_special=False)) == b"a\0b"
    assert tokenizer.piece(len(TOKENS)) == b"a\0b"


def test_scores_that_are_no_numbers() -> None:
    scores = [float("nan") if i % 2 else float("inf") for i in range(len(TOKENS))]
    assert spm(scores=scores).decode(spm(scores=scores).encode("abc ab", add_special=False)) == b"abc ab"


def test_doubles_are_refused() -> None:
    with pytest.raises(TokenizerError, match=r"b'ab' is there twice, as \d+ and \d+"):
        spm([*TOKENS, "ab"], [*SCORES, 0.0], [*TYPES, NORMAL])
