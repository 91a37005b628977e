"""What all kinds share: frames, control tokens, cleaning up, special ids, and what broken vocabularies lead to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import localllm
from localllm.errors import TokenizerError
from localllm.text.pretokenizers import PRE_TOKENIZERS
from tests.text.vocabularies import BYTES, bpe, metadata

Tokenizer = localllm.Tokenizer


def framed(**keys: Any) -> localllm.Tokenizer:
    found = bpe([], extra=["<bos>", "<eos>"], bos_token_id=256, eos_token_id=257, **keys)
    return Tokenizer.from_metadata(found | {"tokenizer.ggml.token_type": np.array([1] * 256 + [3, 3])})


@pytest.mark.parametrize(("bos", "eos"), [(False, False), (True, False), (False, True), (True, True)])
def test_bos_and_eos_as_the_file_says(bos: bool, eos: bool) -> None:
    tokenizer = framed(add_bos_token=bos, add_eos_token=eos)
    text = tokenizer.encode("hi", add_special=False)
    assert tokenizer.encode("hi") == [256] * bos + text + [257] * eos
    assert tokenizer.encode("") == [256] * bos + [257] * eos


def test_special_texts_from_outside_are_text() -> None:
    tokenizer = framed()
    ids = tokenizer.encode("<bos>", add_special=False)
    assert 256 not in ids
    assert tokenizer.decode(ids) == b"<bos>"
    assert tokenizer.encode("<bos>", add_special=False, parse_special=True) == [256]


def test_control_tokens_are_shown_on_demand() -> None:
    tokenizer = framed()
    assert (tokenizer.piece(256), tokenizer.piece(256, special=True)) == (b"", b"<bos>")
    assert tokenizer.decode([256, 0, 257], special=True) == b"<bos>!<eos>"
    assert (tokenizer.is_control(256), tokenizer.is_control(0)) == (True, False)
    assert tokenizer.stream(special=True).push(257) == "<eos>"
    assert tokenizer.stream().push(257) == ""


@pytest.mark.parametrize("id_", [-1, 258, 1 << 40])
def test_ids_outside_are_refused(id_: int) -> None:
    with pytest.raises(TokenizerError, match=r"token .*ids 0 to 257"):
        framed().decode([id_])


def test_cleaning_up_spaces() -> None:
    tokenizer = framed()
    for text, clean in (("a ? b !", "a? b!"), (" .", "."), ("it 's , 're 't", "it's,'re 't"), ("a ' b", "a'b"), ("a ' ' b", "a'' b")):
        assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == clean.encode()
    assert framed(pre="qwen2").decode(tokenizer.encode("a ?", add_special=False)) == b"a ?"


def test_lone_surrogates_become_replacement_characters() -> None:
    tokenizer = framed()
    assert tokenizer.decode(tokenizer.encode("a\ud800b\udcff")) == "a\ufffdb\ufffd".encode()


def names(*tokens: str, **keys: Any) -> localllm.Tokenizer:
    return Tokenizer.from_metadata(metadata("llama", ["<unk>", "<s>", "</e>", *tokens], token_type=[2, 3, 3] + [1] * len(tokens), **keys))


def test_end_of_generation_by_name() -> None:
    tokenizer = names("<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "plain", "</s>")
    assert tokenizer.eog == {2, 3, 4, 5, 7}
    assert (tokenizer.eot, tokenizer.eom) == (3, None)
    assert tokenizer.is_control(4)
    assert names("x", eot_token_id=3).eog == {2, 3}


def test_end_of_generation_of_gpt_oss_and_gemma4() -> None:
    tokenizer = names("<|end|>", "<|return|>", "<|call|>", "<|channel|>")
    assert tokenizer.eog == {2, 4, 5}
    assert (tokenizer.piece(3), tokenizer.piece(6)) == (b"<|end|>", b"<|channel|>")
    assert names("<|end|>", "<|return|>").eog == {2, 3, 4}
    gemma = names("</s>", "<|tool_response>", "<turn|>")
    assert gemma.eog == {2, 4, 5}
    assert not gemma.is_control(3)


def test_special_ids_out_of_range_are_left_out() -> None:
    tokenizer = names("a", eos_token_id=99, padding_token_id=-1, seperator_token_id=3)
    assert (tokenizer.bos, tokenizer.eos, tokenizer.pad, tokenizer.sep, tokenizer.unk, tokenizer.mask) == (1, 2, None, 3, 0, None)
    with pytest.raises(TokenizerError, match="adds a eos token"):
        Tokenizer.from_metadata(metadata("gpt2", ["a"], merges=[], add_eos_token=True))


def test_phi3_swallows_white_space_behind_its_tokens() -> None:
    keys = metadata("llama", ["<unk>", "<s>", "</e>", "<|end|>", *BYTES], token_type=[2, 3, 3, 3] + [6] * 256, add_space_prefix=False)
    tokenizer = Tokenizer.from_metadata(keys | {"general.name": "Phi-3 mini"})
    assert tokenizer.encode("<|end|> \n!<s> ", add_special=False, parse_special=True)[:4] == [3, 4 + 0x21, 1, 4 + 0xE2]


@pytest.mark.parametrize("model", ["no_vocab", "none"])
def test_files_without_a_vocabulary(model: str) -> None:
    with pytest.raises(TokenizerError, match="holds no tokenizer"):
        Tokenizer.from_metadata({"tokenizer.ggml.model": model})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, "model: a string was expected"),
        ({"model": ""}, "model: the key is missing"),
        ({"model": "magic"}, "'magic' is not known here; known are: gpt2"),
        ({"pre": "magic"}, "pre-tokenizer 'magic' is not known"),
        ({"tokens": []}, "tokens: the key is missing or empty"),
        ({"tokens": 3}, "tokens: an array of strings was expected, not 3"),
        ({"tokens": [1, 2]}, "it holds other things"),
        ({"tokens": ["a", "b", "a"]}, "b'a' is there twice, as 0 and 2"),
        ({"scores": np.zeros(3)}, "scores: has 3 entries, the vocabulary has 256 tokens"),
        ({"scores": np.array(["x"])}, "scores: an array of numbers was expected"),
        ({"token_type": np.zeros(255, np.int32)}, "token_type: has 255 entries"),
        ({"token_type": np.zeros(256, np.float32)}, "token_type: an array of numbers was expected"),
        ({"token_type": [[1], [2, 3]]}, "token_type: an array of numbers was expected"),
        ({"merges": "a b"}, "merges: an array of strings was expected"),
        ({"add_bos_token": 1}, "add_bos_token: a bool was expected, not 1"),
    ],
)
def test_broken_metadata(change: Mapping[str, Any], message: str) -> None:
    keys = bpe([]) | {f"tokenizer.ggml.{k}": v for k, v in change.items()}
    with pytest.raises(TokenizerError, match=message) as caught:
        Tokenizer.from_metadata(keys)
    assert "\n" not in str(caught.value)


ATOMS = [
    "",
    "a",
    "b",
    "ab",
    "\u0120a",
    "<0x41>",
    "<0xZZ>",
    "<0x",
    "\u2581",
    "<s>",
    "</s>",
    "<|im_end|>",
    "x" * 200,
    "\n\n",
    "\\x4",
    "a\0b",
    "unused",
]
TOKEN = st.one_of(st.sampled_from([a.encode() for a in ATOMS]), st.binary(min_size=1, max_size=4))
ID = st.sampled_from([0, 1, 2, 5, -1, 2**32 - 1])
KEYS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["gpt2", "llama", "bert", "t5", "rwkv", "gemma4"]),
        "tokens": st.lists(TOKEN, min_size=1, max_size=30, unique=True),
    },
    optional={
        "merges": st.lists(st.one_of(TOKEN, st.tuples(TOKEN, TOKEN).map(b" ".join)), max_size=12),
        "pre": st.sampled_from(sorted(PRE_TOKENIZERS)),
        "bos_token_id": ID,
        "eos_token_id": ID,
        "seperator_token_id": ID,
        "unknown_token_id": ID,
        "add_bos_token": st.booleans(),
        "add_eos_token": st.booleans(),
        "add_space_prefix": st.booleans(),
        "precompiled_charsmap": st.binary(max_size=60).map(lambda b: np.frombuffer(b, np.int8)),
    },
)


@given(KEYS, st.lists(st.integers(-1, 9), min_size=31, max_size=31), st.text(max_size=20))
@settings(max_examples=150, deadline=None)
def test_hostile_vocabularies_never_crash(keys: dict[str, Any], types: list[int], text: str) -> None:
    found = {f"tokenizer.ggml.{k}": v for k, v in keys.items()} | {"tokenizer.ggml.token_type": np.array(types, np.int32)}
    try:
        tokenizer = Tokenizer.from_metadata(found)
        ids = tokenizer.encode(text + "ab <s></s>\n\na", parse_special=True)
    except TokenizerError:
        return
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    for i in range(tokenizer.vocab_size):
        assert isinstance(tokenizer.piece(i, special=True), bytes)
    tokenizer.decode(ids, special=True)
