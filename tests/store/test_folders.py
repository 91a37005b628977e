"""The cache folder: the user's word first, then the system's custom."""

from __future__ import annotations

from pathlib import Path

import pytest

from localllm.folders import cache_folder
from localllm.store.folders import models_folder


def test_own_variable_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCALLLM_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "mine"
    assert models_folder() == tmp_path / "mine" / "models"


def test_xdg_only_if_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOCALLLM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "localllm"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert Path("relative") not in cache_folder().parents


@pytest.mark.parametrize(
    ("platform", "tail"),
    [
        ("linux", (".cache", "localllm")),
        ("darwin", ("Library", "Caches", "localllm")),
        ("win32", ("AppData", "Local", "localllm")),
    ],
)
def test_custom_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, tail: tuple[str, ...]) -> None:
    for name in ("LOCALLLM_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder() == tmp_path.joinpath(*tail)
