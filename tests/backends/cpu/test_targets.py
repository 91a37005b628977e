"""The kernel tests once more for every other target that this machine can run, each in a process of its own: ``-m targets``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localllm.backends.cpu.target import available, current

pytestmark = pytest.mark.targets
FOLDER = Path(__file__).parent


@pytest.mark.parametrize("target", [name for name in available() if name != current().name])
def test_kernels(target: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER)]
    environment = {**os.environ, "LOCALLLM_CPU": target}
    done = subprocess.run(command, cwd=FOLDER.parents[2], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
