"""The pre-tokenizers, against what llama.cpp makes of the same strings (recorded through its Python binding)."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from localllm.errors import TokenizerError
from localllm.text import Tokenizer
from localllm.text.pretokenizers import PRE_TOKENIZERS, pre_tokenizer
from tests.text.vocabularies import pairs

RECORDED = json.loads(Path(__file__).with_name("pretokenizers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: case["names"].split()[0])
def test_recorded(case: dict[str, Any]) -> None:
    for name in case["names"].split():
        tokenizer = Tokenizer.from_metadata(pairs(RECORDED["alphabet"], name))
        for text, lengths in zip(RECORDED["strings"], case["lengths"], strict=True):
            pieces = [tokenizer.piece(i) for i in tokenizer.encode(text, add_special=False)]
            assert b"".join(pieces) == text.encode()
            assert " ".join(str(len(piece)) for piece in pieces) == lengths, (name, text)


def test_all_names_are_recorded() -> None:
    # With "whitespace" llama.cpp loses the spaces on purpose, so there is nothing to compare.
    recorded = {name for case in RECORDED["cases"] for name in case["names"].split()}
    assert recorded == PRE_TOKENIZERS.keys() - {"whitespace"}


def test_whitespace_keeps_words_only() -> None:
    keys = pairs("ab", "whitespace")
    keys |= {"tokenizer.ggml.tokens": ["a", "b", "ab", "ba"], "tokenizer.ggml.merges": ["a b", "b a"]}
    keys["tokenizer.ggml.bos_token_id"] = keys["tokenizer.ggml.eos_token_id"] = 0
    assert Tokenizer.from_metadata(keys).encode(" ab\n b  a", add_special=False) == [2, 1, 0]


def test_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(TokenizerError, match=r"'llama-9' is not known.*qwen2 .*tekken"):
        pre_tokenizer("llama-9")
    assert pre_tokenizer("") is PRE_TOKENIZERS["default"]


@pytest.mark.parametrize("unit", ["1", "a", " ", "\n", "A", "\u0301", "!", "1a", " \n", "'"])
def test_no_pre_tokenizer_is_quadratic(unit: str) -> None:
    from tokenizers import Regex, pre_tokenizers

    for regexes in {pre.regexes for pre in PRE_TOKENIZERS.values()}:
        splitter = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated") for regex in regexes])
        start = process_time()
        splitter.pre_tokenize_str(unit * (20_000 // len(unit)))
        # A quadratic one takes some 2 seconds.
        assert process_time() - start < 0.8, regexes
