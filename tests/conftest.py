"""Fixtures that the whole suite shares: where the recorded goldens and the real models are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Models:
    """The folder of the real models; ``get`` gives one file or skips the test, with the reason."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, file_name: str) -> Path:
        """The path of one model file."""
        path = self.folder / file_name
        if not path.is_file():
            pytest.skip(f"no {file_name} in {self.folder} (LOCALLLM_TEST_MODELS)")
        return path


def _folder(variable: str, default: Path) -> Path:
    folder = Path(os.environ.get(variable) or default).expanduser()
    if not folder.is_dir():
        pytest.skip(f"no folder {folder} ({variable})")
    return folder


@pytest.fixture(scope="session")
def goldens() -> Path:
    """The folder of recorded goldens."""
    return _folder("LOCALLLM_GOLDENS", ROOT.parent / "shared" / "models")


@pytest.fixture(scope="session")
def models() -> Models:
    """The folder of real models, for tests marked ``model``."""
    return Models(_folder("LOCALLLM_TEST_MODELS", Path.home() / ".cache" / "localllm-test-models"))
