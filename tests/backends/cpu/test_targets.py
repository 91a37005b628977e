"""The kernel tests once more for every other target that this machine can run, each in a process of its own: ``-m targets``; and a
real model: ``-m model``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localllm.backends.cpu.target import available, current

FOLDER = Path(__file__).parent
OTHERS = [name for name in available() if name != current().name]


@pytest.mark.targets
@pytest.mark.parametrize("target", OTHERS)
def test_kernels(target: str) -> None:
    others = ("goldens", "threads", "crew", "kernel_cache", "guard")  # the same on every target, or too long for some
    run_tests(target, str(FOLDER), *(f"--ignore={FOLDER / f'test_{name}.py'}" for name in others))


@pytest.mark.model
@pytest.mark.parametrize("target", OTHERS)
def test_real_model(target: str, model_file: Callable[[str], Path]) -> None:
    model_file("SmolLM2-135M-Instruct.Q4_1.gguf")
    run_tests(target, str(FOLDER / "test_goldens.py"), "-m", "model", "-k", "SmolLM2")


def run_tests(target: str, *arguments: str) -> None:
    """Runs tests in a process for the target; some have to pass and none may fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "LOCALLLM_CPU": target}
    done = subprocess.run(command, cwd=FOLDER.parents[2], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
