"""Processes that are killed while they write lines to disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import localllm
from tests import tiny
from tests.conftest import ROOT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks")
def test_killed_50_times_and_never_wrong(tmp_path: Path) -> None:
    model = tiny.write(tmp_path / "tiny.gguf", type="Q8_0")
    with localllm.load(model, backend="cpu"):
        pass  # kernels are compiled before anything is killed
    command = [sys.executable, "-m", "tests.crash", str(model), str(tmp_path / "kv"), "50"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert (seen["wrong"], seen["errors"], seen["finished"]) == (0, 0, 0), ran.stderr
    assert seen["hits"] >= 50  # what was left could be used
    assert seen["drafts"] >= 5  # and writers did die in the middle
