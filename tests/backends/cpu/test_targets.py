"""The kernel tests once more for every other target that this machine can run, each in a process of its own: ``-m targets``; and a
real model: ``-m model``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localllm.backends.cpu.target import available, current

FOLDER = Path(__file__).parent
OTHERS = [name for name in available() if name != current().name]


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest) -> Iterator[dict[str, Tests]]:
    """The kernel tests of all chosen targets, at the same time: most of it is compiling, on one core each."""
    chosen = [item.callspec.params["target"] for item in request.session.items if getattr(item, "originalname", "") == "test_kernels"]  # type: ignore[attr-defined]
    others = "goldens", "threads", "crew", "kernel_cache", "guard", "loading", "resources", "neon"  # the same on all, or too long for some
    running = {target: Tests(target, str(FOLDER), *(f"--ignore={FOLDER / f'test_{name}.py'}" for name in others)) for target in chosen}
    yield running
    for tests in running.values():
        tests.process.kill()


@pytest.mark.targets
@pytest.mark.parametrize("target", OTHERS)
def test_kernels(target: str, started: dict[str, Tests]) -> None:
    started[target].check()


@pytest.mark.model
@pytest.mark.parametrize("target", OTHERS)
def test_real_model(target: str, model_file: Callable[[str], Path]) -> None:
    model_file("SmolLM2-135M-Instruct.Q4_1.gguf")
    Tests(target, str(FOLDER / "test_goldens.py"), "-m", "model", "-k", "SmolLM2").check()


class Tests:
    """Tests in a process for the target; some have to pass and none may fail."""

    __test__ = False

    def __init__(self, target: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        environment, self._output = {**os.environ, "LOCALLLM_CPU": target}, tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(command, cwd=FOLDER.parents[2], env=environment, stdout=self._output, stderr=subprocess.STDOUT)

    def check(self) -> None:
        """Wait for the end."""
        status = self.process.wait()
        self._output.seek(0)
        found = self._output.read()
        assert status == 0, found[-6000:]
        assert " passed" in found
        self._output.close()
