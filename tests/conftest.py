"""Fixtures that the whole suite shares: where the recorded goldens and the real models are."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

# A shell without job control starts what runs in the background with Ctrl-C ignored, and all that tests start would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
_numbers = itertools.count()


def _folder(variable: str, default: Path) -> Path:
    folder = Path(os.environ.get(variable) or default).expanduser()
    if not folder.is_dir():
        pytest.skip(f"no folder {folder} ({variable})")
    return folder


@pytest.fixture(autouse=True)
def kv_folder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this test's models keep computed lines: nowhere near the user's own."""
    folder = tmp_path_factory.getbasetemp() / "kv" / str(next(_numbers))
    monkeypatch.setattr("localllm.store.folders.kv_folder", lambda: folder)
    return folder


@pytest.fixture(scope="session")
def goldens() -> Path:
    """The folder of recorded goldens."""
    return _folder("LOCALLLM_GOLDENS", ROOT.parent / "shared" / "models")


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of real models, for tests marked ``model``."""
    return _folder("LOCALLLM_TEST_MODELS", Path.home() / ".cache" / "localllm-test-models")


@pytest.fixture(scope="session")
def model_file(models: Path) -> Callable[[str], Path]:
    """A function that gives the path of one real model, or skips the test where that file is missing."""

    def get(file_name: str) -> Path:
        path = models / file_name
        if not path.is_file():
            pytest.skip(f"no {file_name} in {models} (LOCALLLM_TEST_MODELS)")
        return path

    return get
