"""Special tokens cut text: which, where, and never from text that only looks like one."""

from __future__ import annotations

import random

from localllm.text import Tokenizer
from localllm.text.partition import Partition
from localllm.text.vocab import LSTRIP, RSTRIP
from tests.text.vocabularies import bpe

SPECIAL = ["<a>", "<ab>", "<ab><c>", "[x]", "x", "\n\n", "\n\n\n"]


def vocabulary(*types: int, names: list[str] = SPECIAL) -> Tokenizer:
    keys = bpe([], extra=names)
    count = len(keys["tokenizer.ggml.tokens"])
    found = [1] * (count - len(types)) + list(types)
    return Tokenizer.from_metadata(keys | {"tokenizer.ggml.token_type": found})


def split(tokenizer: Tokenizer, text: str, parse: bool) -> list[str]:
    parts = Partition(tokenizer.vocab).split(text, parse)
    return [part if isinstance(part, str) else f"#{tokenizer.vocab.tokens[part].decode()}" for part in parts]


def test_control_tokens_only_when_asked_for() -> None:
    tokenizer = vocabulary(3, 3, 3, names=["<a>", "<b>", "<c>"])
    assert split(tokenizer, "1<a>2<b><c>", False) == ["1<a>2<b><c>"]
    assert split(tokenizer, "1<a>2<b><c>", True) == ["1", "#<a>", "2", "#<b>", "#<c>"]
    assert split(tokenizer, "", True) == []


def test_user_defined_tokens_always() -> None:
    tokenizer = vocabulary(4, 3, names=["<a>", "<b>"])
    assert split(tokenizer, "<b><a>", False) == ["<b>", "#<a>"]


def test_longest_first_wherever_it_stands() -> None:
    tokenizer = vocabulary(4, 4, 4, names=["aab", "bcde", "cde"])
    assert split(tokenizer, "aabcdecde", False) == ["aa", "#bcde", "#cde"]
    runs = vocabulary(4, 4, names=["<n><n>", "<n><n><n>"])
    assert split(runs, "<n>" * 5, False) == ["#<n><n><n>", "#<n><n>"]
    assert split(runs, "<n>" * 4, False) == ["#<n><n><n>", "<n>"]


def test_tokens_that_swallow_white_space() -> None:
    tokenizer = vocabulary(4, 4, names=["<l>", "<r>"])
    tokenizer.vocab.attr[-2] |= LSTRIP
    tokenizer.vocab.attr[-1] |= RSTRIP
    assert split(tokenizer, "a \n<l> b <r> \t c <r><l> ", False) == ["a", "#<l>", " b ", "#<r>", "c ", "#<r>", "#<l>", " "]


def test_many_tokens_that_begin_alike() -> None:
    names = [f"<unused{i}>" for i in range(300)]
    tokenizer = vocabulary(*[4] * 300, names=names)
    assert split(tokenizer, "<unused7><unused77><unused777>", False) == ["#<unused7>", "#<unused77>", "<unused777>"]


def test_against_cutting_one_token_after_the_other() -> None:
    names = ["ab", "ba", "aab", "bb", "abc", "ca"]
    tokenizer = vocabulary(*[4] * len(names), names=names)
    rng = random.Random(2)
    for _ in range(300):
        text = "".join(rng.choices("abc", k=rng.randint(0, 14)))
        parts = [text] if text else []
        for name in sorted(names, key=len, reverse=True):
            parts = [piece for part in parts for piece in cut(part, name)]
        assert split(tokenizer, text, False) == parts


def cut(part: str, name: str) -> list[str]:
    if part.startswith("#"):
        return [part]
    pieces = [piece for before in part.split(name) for piece in (before, f"#{name}")][:-1]
    return [piece for piece in pieces if piece]
