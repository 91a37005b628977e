"""``localllm tokenize``: the tokenizer's own words, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import localllm
from tests import tiny
from tests.cli.fakes import Ran

Run = Callable[..., Ran]
TEXT = "Grüße 🙂\n<|im_end|>"


@pytest.fixture(params=["spm", "bpe"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model with a vocabulary of either kind, in which most characters are several tokens."""
    return tiny.write(tmp_path / "m.gguf", vocabulary=request.param)


@pytest.mark.parametrize("flags", [[], ["--no-special"], ["--parse-special"], ["--no-special", "--parse-special"]])
def test_json(run: Run, model: Path, flags: list[str]) -> None:
    record = json.loads(run("tokenize", model, TEXT, "--json", *flags).out)
    tokenizer = localllm.Tokenizer.from_gguf(model)
    ids = tokenizer.encode(TEXT, add_special="--no-special" not in flags, parse_special="--parse-special" in flags)
    assert record["ids"] == ids
    assert record["pieces"] == [tokenizer.decode([id_], special=True).decode("utf-8", "backslashreplace") for id_ in ids]
    assert any("\\x" in piece for piece in record["pieces"])


def test_a_line_for_each_token(run: Run, model: Path) -> None:
    ids = localllm.Tokenizer.from_gguf(model).encode("a b")
    lines = run("tokenize", model, "a b").out.splitlines()
    assert [int(line.split()[0]) for line in lines] == ids


def test_a_piped_text_is_taken_to_the_last_byte(run: Run, model: Path) -> None:
    ids = json.loads(run("tokenize", model, "--json", stdin=b"a\r\n\n").out)["ids"]
    assert ids == localllm.Tokenizer.from_gguf(model).encode("a\r\n\n")


def test_a_file(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(TEXT.encode())
    assert run("tokenize", model, "-f", tmp_path / "text", "--json").out == run("tokenize", model, TEXT, "--json").out
    assert run("tokenize", model, TEXT, "-f", tmp_path / "text").code == 2


def test_an_empty_text(run: Run, model: Path) -> None:
    ran = run("tokenize", model, "", "--no-special")
    assert (ran.code, ran.out) == (0, "")
