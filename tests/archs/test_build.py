"""From metadata and tensors to a Program: the registry, and what is refused."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from typing import Any

import pytest

from localllm import archs
from localllm.errors import GGUFError, UnsupportedError
from localllm.model.program import Linear, Program
from tests import tiny
from tests.archs.fake import FakeFile, fake


def test_every_family_is_tested() -> None:
    assert set(tiny.FAMILIES) == set(archs.FAMILIES)


def test_families_name_modules() -> None:
    here = {module.name for module in pkgutil.iter_modules(archs.__path__)}
    assert set(archs.FAMILIES.values()) <= here
    for module in archs.FAMILIES.values():
        assert importlib.import_module(f"localllm.archs.{module}").configure.__doc__


def test_families_are_imported_when_asked_for() -> None:
    code = "import sys, localllm.archs; sys.exit(any(f'localllm.archs.{name}' in sys.modules for name in localllm.archs.FAMILIES.values()))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_build(family: str) -> None:
    file = fake(family)
    program = archs.build(file)
    assert set(program.shapes) == set(file.tensors)
    assert all(file.tensors[name].shape == shape for name, shape in program.shapes.items())
    assert program.vocab == file.tensors["token_embd.weight"].shape[0]
    assert program.context == 256
    assert program.widths[program.result] == program.vocab


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("llama4", "the nearest known: llama"),
        ("qwen2moe", "the nearest known: qwen2, qwen3"),
        ("bert", "known: gemma3, llama, qwen2, qwen3"),
    ],
)
def test_unknown_architecture(name: str, near: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"'models/fake\.gguf': architecture '{name}' is not supported; {near}$"):
        archs.build(FakeFile({"general.architecture": name}))


def test_hostile_names_are_cut() -> None:
    for file in (FakeFile({"general.architecture": "llama\n" * 10**5}), fake(tensors={"x\n" * 30000: (1,)})):
        with pytest.raises(UnsupportedError) as error:
            archs.build(file)
        assert len(str(error.value)) < 300 and "\n" not in str(error.value)


@pytest.mark.parametrize("value", [None, 3, ["llama"]])
def test_no_architecture(value: Any) -> None:
    with pytest.raises(GGUFError, match=re.escape(f"'general.architecture' is {value!r}")):
        archs.build(FakeFile({"general.architecture": value}))


def test_no_weights() -> None:
    with pytest.raises(GGUFError, match=r"fake\.gguf': holds no weights"):
        archs.build(FakeFile(fake().metadata))


@pytest.mark.parametrize(
    ("family", "tensor"),
    [
        ("llama", "token_embd.weight"),
        ("llama", "output_norm.weight"),
        ("llama", "blk.1.attn_norm.weight"),
        ("llama", "blk.0.ffn_down.weight"),
        ("qwen2", "blk.1.attn_k.bias"),
        ("qwen3", "blk.0.attn_q_norm.weight"),
        ("gemma3", "blk.1.post_ffw_norm.weight"),
    ],
)
def test_missing_tensor(family: str, tensor: str) -> None:
    with pytest.raises(GGUFError, match=rf"fake\.gguf': tensor '{tensor}' is missing"):
        archs.build(fake(family, tensors={tensor: None}))


def test_missing_tensor_names_its_like() -> None:
    with pytest.raises(GGUFError, match=r"'blk\.0\.attn_q\.weight' is missing; names like it are .*'blk\.0\.attn_qkv\.weight'"):
        archs.build(fake(tensors={"blk.0.attn_q.weight": None, "blk.0.attn_qkv.weight": (128, 64)}))


@pytest.mark.parametrize(
    ("tensor", "shape", "expected"),
    [
        ("blk.1.attn_q.weight", (32, 64), "(64, 64)"),
        ("blk.0.attn_norm.weight", (1, 64), "(64,)"),
        ("blk.0.ffn_down.weight", (96, 64), "(64, 96)"),
        ("token_embd.weight", (64, 360), "(rows, 64)"),
        ("token_embd.weight", (64,), "(rows, 64)"),
        ("output.weight", (10, 64), f"({len(tiny.keys(tiny.Spec())['tokenizer.ggml.tokens'])}, 64)"),
    ],
)
def test_wrong_shape(tensor: str, shape: tuple[int, ...], expected: str) -> None:
    with pytest.raises(GGUFError, match=re.escape(f"tensor '{tensor}' has shape {shape}, expected {expected}")):
        archs.build(fake(tensors={tensor: shape}))


@pytest.mark.parametrize(
    "tensor",
    [
        "blk.0.attn_sinks.weight",
        "blk.1.attn_q_norm.weight",
        "blk.2.attn_q.weight",
        "blk.0.attn_q.scale",
        "position_embd.weight",
        "output.scale",
    ],
)
def test_leftover_tensor(tensor: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"1 of its tensors have no place .* 'llama' with 2 layers: '{tensor}'; without them"):
        archs.build(fake(tensors={tensor: (64,)}))


def test_many_leftover_tensors_are_counted() -> None:
    with pytest.raises(UnsupportedError, match=r"5 of its tensors .*: 'a0', 'a1', 'a2' \.\.\.; without"):
        archs.build(fake(tensors={f"a{i}": (1,) for i in range(5)}))


@pytest.mark.parametrize(
    "tensor", ["v.patch_embd.weight", "mm.0.weight", "cls.output.weight", "blk.0.attn_rot_embd.weight", "blk.1.nextn.eh_proj.weight"]
)
def test_tensors_that_text_does_not_need(tensor: str) -> None:
    assert tensor not in archs.build(fake(tensors={tensor: (3, 5)})).shapes


def test_blocks_that_predict_further_tokens_are_left_out() -> None:
    file = fake(layers=3, metadata={"nextn_predict_layers": 1})
    program = archs.build(file)
    assert "blk.1.attn_q.weight" in program.shapes and "blk.2.attn_q.weight" not in program.shapes


def test_tied_output() -> None:
    tied, own = archs.build(fake(tied=True)), archs.build(fake(tied=False))
    assert _output(tied).weight == "token_embd.weight" and "output.weight" not in tied.shapes
    assert _output(own).weight == "output.weight"


def test_output_bias() -> None:
    rows = fake().tensors["token_embd.weight"].shape[0]
    assert _output(archs.build(fake(tensors={"output.bias": (rows,)}))).bias == "output.bias"
    with pytest.raises(GGUFError, match=r"'output\.bias' has shape \(3,\)"):
        archs.build(fake(tensors={"output.bias": (3,)}))


def _output(program: Program) -> Linear:
    op = program.ops[-1]
    assert isinstance(op, Linear) and op.out == program.result
    return op
