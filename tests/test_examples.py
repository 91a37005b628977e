"""Every example runs, on a model as small as can be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny
from tests.conftest import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that can chat."""
    return tiny.write(tmp_path_factory.mktemp("examples") / "tiny.gguf", context=512)


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == ["inspect_file", "one_liner", "several_answers", "streaming"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, model: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 40
    ran = subprocess.run([sys.executable, str(example), str(model)], capture_output=True, timeout=120)
    assert ran.returncode == 0, ran.stderr.decode()
    assert ran.stdout.strip()
