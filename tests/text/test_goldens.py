"""Every recorded vocabulary: ids, bytes, pieces, attributes and special ids equal llama.cpp's."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from localllm.text import Tokenizer
from tests.conftest import ROOT

FLAGS = {"ids": (False, False), "ids_parse_special": (False, True), "ids_add_special": (True, False), "ids_add_parse": (True, True)}
FOLDER = Path(os.environ.get("LOCALLLM_GOLDENS") or ROOT.parent / "shared" / "models") / "vocab"
NAMES = sorted(file.stem for file in FOLDER.glob("*.json") if not file.stem.startswith("strings"))
REAL = [name for name in NAMES if not (FOLDER / f"ggml-vocab-{name}.gguf").exists()]
# llama.cpp shows a character outside GPT-2's alphabet in brackets with its bytes; we show the character.
BROKEN = "[UNK_BYTE_0x"


def raw(case: dict[str, Any], key: str) -> bytes | None:
    if key in case:
        return str(case[key]).encode()
    return base64.b64decode(case[f"{key}_b64"]) if f"{key}_b64" in case else None


@pytest.fixture(scope="module", params=[pytest.param(name, marks=[pytest.mark.model] if name in REAL else []) for name in NAMES])
def recorded(request: pytest.FixtureRequest, goldens: Path) -> tuple[dict[str, Any], Tokenizer]:
    golden = json.loads((goldens / "vocab" / f"{request.param}.json").read_text(encoding="utf-8"))
    path = goldens / "vocab" / golden["vocab"]
    if not path.exists():
        path = request.getfixturevalue("model_file")(golden["vocab"])
    return golden, Tokenizer.from_gguf(path)


@pytest.fixture(scope="module")
def strings(goldens: Path) -> dict[str, str]:
    found = json.loads((goldens / "vocab" / "strings.json").read_text(encoding="utf-8"))
    return {s["id"]: s["text"] for s in found if "text" in s}


def test_goldens_are_there(goldens: Path) -> None:
    assert len(NAMES) >= 15


@pytest.mark.parametrize("flags", FLAGS)
def test_encode(recorded: tuple[dict[str, Any], Tokenizer], strings: dict[str, str], flags: str) -> None:
    golden, tokenizer = recorded
    add, parse = FLAGS[flags]
    cases = {key: case for key, case in golden["cases"].items() if key in strings and "error" not in case}
    wanted = {key: case.get(flags, case["ids"]) for key, case in cases.items()}
    assert {key: tokenizer.encode(strings[key], add_special=add, parse_special=parse) for key in cases} == wanted


def test_decode(recorded: tuple[dict[str, Any], Tokenizer], strings: dict[str, str]) -> None:
    golden, tokenizer = recorded
    for key, case in golden["cases"].items():
        if key in strings and "error" not in case:
            assert tokenizer.decode(case["ids"]) == raw(case, "detok"), key
            ids = case.get("ids_add_parse", case["ids"])
            assert tokenizer.decode(ids, special=True) == raw(case, "detok_add_parse_unparse"), key


def test_pieces_and_attributes(recorded: tuple[dict[str, Any], Tokenizer]) -> None:
    golden, tokenizer = recorded
    for entry in golden["pieces"]:
        id_, piece = entry["id"], raw(entry, "piece")
        assert int(tokenizer.vocab.attr[id_]) == entry["attr"]
        assert tokenizer.is_control(id_) == bool(entry["attr"] & 8)
        if not str(entry.get("piece", "")).startswith(BROKEN):
            assert tokenizer.piece(id_) == piece
            assert tokenizer.piece(id_, special=True) == (raw(entry, "piece_special") or piece)


def test_all_pieces(recorded: tuple[dict[str, Any], Tokenizer]) -> None:
    golden, tokenizer = recorded
    if any(str(entry.get("piece", "")).startswith(BROKEN) for entry in golden["pieces"]):
        pytest.skip("llama.cpp shows some of these in brackets")
    digest = hashlib.sha256()
    for id_ in range(tokenizer.vocab_size):
        piece = tokenizer.piece(id_, special=True)
        digest.update(len(piece).to_bytes(4, "little") + piece)
    assert digest.hexdigest() == golden["all_pieces_sha256"]


def test_special_ids(recorded: tuple[dict[str, Any], Tokenizer]) -> None:
    golden, tokenizer = recorded
    assert tokenizer.vocab_size == golden["n_vocab"]
    assert tokenizer.eog == set(golden["eog"])
    assert (tokenizer.add_bos, tokenizer.add_eos) == (golden["add_bos"], golden["add_eos"])
    for role in ("bos", "eos", "sep", "pad", "fim_pre", "fim_suf", "fim_mid"):
        assert getattr(tokenizer, role) == (None if golden[role] < 0 else golden[role]), role
    # Several texts may mark the end of a turn, and which llama.cpp takes depends on its hash table.
    assert tokenizer.eot in tokenizer.eog or golden["eot"] < 0


def test_llama_cpp_own_strings(goldens: Path, recorded: tuple[dict[str, Any], Tokenizer]) -> None:
    golden, tokenizer = recorded
    inputs = goldens / "vocab" / f"{golden['vocab']}.inp"
    if not inputs.exists():
        pytest.skip("no such strings for this vocabulary")
    texts = inputs.read_bytes().decode().removesuffix("\n__ggml_vocab_test__\n").split("\n__ggml_vocab_test__\n")
    lines = inputs.with_suffix(".out").read_text().splitlines()
    assert [tokenizer.encode(text, add_special=False) for text in texts] == [[int(i) for i in line.split()] for line in lines]
