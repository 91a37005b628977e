"""The command on real models."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localllm import store
from localllm.store.verify import digest

pytestmark = pytest.mark.model
ModelFile = Callable[[str], Path]


def run(*arguments: object) -> str:
    """The command as a process of its own; its standard output."""
    command = [sys.executable, "-m", "localllm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=True, timeout=300).stdout.decode()


@pytest.mark.parametrize("entry", store.catalogue(), ids=lambda entry: entry.name)
def test_the_catalogue_names_these_files(entry: store.Entry, model_file: ModelFile) -> None:
    path = model_file(entry.file)
    assert (path.stat().st_size, digest(path)) == (entry.size, entry.sha256)


@pytest.mark.parametrize("name", ["smollm2:135m", "gemma3:270m", "qwen2.5-coder:0.5b"])
def test_what_every_model_knows(name: str, model_file: ModelFile) -> None:
    entry = store.find(name)
    assert entry is not None
    out = run("run", model_file(entry.file), "--raw", "-n", 4, "--temp", 0, "Days of the week:\n1. Monday\n2. Tuesday\n3.")
    assert out.startswith(" Wednesday")


def test_an_answer_in_the_models_own_template(model_file: ModelFile) -> None:
    path = model_file("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
    out = run("run", path, "-n", 64, "--temp", 0, "Write a Python function that adds two numbers. Only code.")
    assert "def " in out and "<|im_" not in out
    assert out == run("run", path, "-n", 64, "--temp", 0, "-t", 1, "Write a Python function that adds two numbers. Only code.")
