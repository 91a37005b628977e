"""AArch64's kernels, looked at as assembly: they can be made on any machine whose LLVM knows that processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.cpu import neon
from tests.backends.cpu.test_ir import SYSTEM

Found = dict[str, dict[str, dict[str, int]]]


def compiled(*arguments: str) -> Found:
    """What neon.py finds; skips where this LLVM has no AArch64."""
    try:
        neon.machine()
    except RuntimeError as error:
        pytest.skip(f"this llvmlite can't compile for AArch64: {error}")
    environment = {name: value for name, value in os.environ.items() if name != "LOCALLLM_CPU"}
    command = [sys.executable, "-m", "tests.backends.cpu.neon", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    found: Found = json.loads(done.stdout)
    return found


def check(found: Found) -> None:
    """Integer products are ``sdot``, float ones fused, and nothing is left to functions that a kernel can't call."""
    for name, has in found.items():
        instructions = has["instructions"]
        if name.startswith(("matmul", "experts-rows", "peaks-dots")):
            assert instructions.get("sdot", 0) >= 64, name
        if name.startswith(("matmul", "experts-rows", "floats", "attention_few-attend", "attention_many")):
            assert instructions.get("fmla", 0) >= 16, name
        assert set(has["calls"]) <= SYSTEM, name


def test_one_kernel_of_each_idea() -> None:
    found = compiled()
    assert len(found) == len(neon.KERNELS)
    check(found)


@pytest.mark.targets
def test_every_kernel() -> None:
    check(compiled("all"))
