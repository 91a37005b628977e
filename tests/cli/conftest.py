"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import localllm
from tests.cli.fakes import FakeModel, Ran, runner


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of fetched models; nothing can be fetched into it."""
    # Not by LOCALLLM_CACHE: compiled kernels are kept there too, and belong to the whole session.
    monkeypatch.setattr("localllm.store.names.models_folder", lambda: tmp_path / "cache")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command line in this process."""
    return runner(monkeypatch, capsys)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    """What localllm.load gives."""
    fake = FakeModel([["Because ", "of Rayleigh."]])

    def load(path: Path, *, progress: Any = None, **options: Any) -> FakeModel:
        fake.loaded = {"path": path, **options}
        return fake

    monkeypatch.setattr(localllm, "load", load, raising=False)
    return fake


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A path that exists."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"")
    return path
