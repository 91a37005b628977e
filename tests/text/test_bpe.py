"""BPE: the merging rule, what broken merges do, and the same ids as the tokenizers package."""

from __future__ import annotations

import random
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localllm.errors import TokenizerError
from localllm.text import Tokenizer
from localllm.text.bpe import byte_alphabet, byte_value
from tests.text.vocabularies import BYTES, bpe, metadata, spelled

MERGES = [
    "t h",
    "th e",
    "\u0120 the",
    "a t",
    "e r",
    "a n",
    "i n",
    "h e",
    "o n",
    "\u0120 a",
    "an d",
    "\u0120a n",
    "th at",
    "in g",
    "1 2",
    "12 3",
]


def pieces(tokenizer: Tokenizer, text: str) -> list[bytes]:
    return [tokenizer.piece(i) for i in tokenizer.encode(text, add_special=False)]


def test_lowest_rank_first_then_leftmost() -> None:
    tokenizer = Tokenizer.from_metadata(bpe(["b c", "a b", "aa a", "a a"]))
    assert pieces(tokenizer, "abc") == [b"a", b"bc"]
    assert pieces(tokenizer, "aaaa") == [b"aaa", b"a"]
    assert pieces(tokenizer, "aaaab") == [b"aaa", b"ab"]


def test_alphabet_covers_every_byte_once() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert (byte_alphabet()["\u0120"], byte_alphabet()["\u010a"], byte_alphabet()["A"]) == (32, 10, 65)


def test_all_bytes_round_trip() -> None:
    tokenizer = Tokenizer.from_metadata(bpe([], "qwen2"))
    text = "".join(map(chr, range(0x3000))) + "\U0001f600\U0010ffff"
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text.encode()


def test_merges_of_unknown_tokens_and_doubles() -> None:
    keys = bpe(["a b"])
    # "x y" makes no token, so its letters go out alone; "b c" and "a b" again come too late to count.
    keys["tokenizer.ggml.merges"] = ["x y", "a b", "", "nospace", "b c", "a b", b"\xff \xfe"]
    assert pieces(Tokenizer.from_metadata(keys), "abc xy") == [b"ab", b"c", b" ", b"x", b"y"]


def test_ignore_merges_takes_whole_words() -> None:
    extra = [spelled(" hello"), "hello"]
    assert pieces(Tokenizer.from_metadata(bpe([], "llama-bpe", extra)), "hello hello") == [b"hello", b" hello"]
    assert len(pieces(Tokenizer.from_metadata(bpe([], "gpt-2", extra)), "hello")) == 5


def test_bytes_without_a_token_are_left_out_and_part_their_neighbours() -> None:
    keys = metadata("gpt2", ["a", "b", "ab"], pre="gpt-2", merges=["a b"], bos_token_id=0, eos_token_id=0)
    assert Tokenizer.from_metadata(keys).encode("ab a!b", add_special=False) == [2, 0, 1]


def test_characters_outside_the_alphabet_are_themselves() -> None:
    tokenizer = Tokenizer.from_metadata(bpe([], extra=["\u200d", "\u4e2d\u0120"]))
    assert tokenizer.piece(256) == "\u200d".encode()
    assert tokenizer.piece(257) == "\u4e2d ".encode()


def test_gemma4_escapes_spaces_and_falls_back_to_bytes() -> None:
    tokens = [*BYTES, "<bos>", "\u2581", "a", "\u2581a", "\n", "\n\n", "\n\n\n"]
    keys = metadata("gemma4", tokens, merges=["\u2581 a"], token_type=[6] * 256 + [3] + [1] * 6, bos_token_id=256, add_bos_token=False)
    tokenizer = Tokenizer.from_metadata(keys)
    assert tokenizer.encode("a a\n\n\u00e9") == [256, 258, 259, 261, 0xC3, 0xA9]
    assert tokenizer.encode("\n\n\n\n", add_special=False) == [260] * 4
    assert tokenizer.decode([259, 261, 0xC3, 0xA9]) == " a\n\n\u00e9".encode()


def test_missing_merges_are_an_error() -> None:
    keys = bpe([])
    del keys["tokenizer.ggml.merges"]
    with pytest.raises(TokenizerError, match=r"tokenizer\.ggml\.merges: the key is missing"):
        Tokenizer.from_metadata(keys)


@pytest.mark.parametrize(("raw", "byte"), [(b"<0x41>", b"A"), (b"<0xff>", b"\xff"), (b"<0xZZ>", b"<0xZZ>"), (b"<0x4", b"<0x4"), (b"", b"")])
def test_byte_value(raw: bytes, byte: bytes) -> None:
    assert byte_value(raw) == byte


def library(merges: list[str]) -> object:
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers

    tokens = bpe(merges)["tokenizer.ggml.tokens"]
    sides = [(merge.split(" ")[0], merge.split(" ")[1]) for merge in merges]
    built = Library(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=sides))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return built


@given(st.text(st.sampled_from("thean do ring123\u00e9\n"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_same_ids_as_the_library(text: str) -> None:
    ours, theirs = _TWO
    assert ours.encode(text, add_special=False) == theirs.encode(text).ids  # type: ignore[attr-defined]


_TWO = Tokenizer.from_metadata(bpe(MERGES)), library(MERGES)


def test_a_long_word_is_not_quadratic() -> None:
    tokenizer = Tokenizer.from_metadata(bpe(MERGES))
    word = "".join(random.Random(1).choices("theandoi", k=60_000))
    start = process_time()
    ids = tokenizer.encode(word, add_special=False)
    assert process_time() - start < 5
    assert tokenizer.decode(ids) == word.encode()
