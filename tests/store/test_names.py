"""Names to files, and what is said about names that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from localllm import store
from localllm.errors import FileError, ModelNotFoundError
from localllm.store import entries as entries_module
from localllm.store.entries import find
from tests.store.fakes import Memory, entry_of


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Memory:
    """The catalogue holds one model, fake:1m; the cache is empty."""
    source = Memory([b"GG", b"UF"])
    monkeypatch.setattr(entries_module, "_ENTRIES", (entry_of(b"GGUF", source),))
    monkeypatch.setenv("LOCALLLM_CACHE", str(tmp_path / "cache"))
    return source


def test_a_path_is_itself(tmp_path: Path, fake: Memory) -> None:
    path = tmp_path / "any.bin"
    path.write_bytes(b"")
    assert store.resolve(str(path)) == path == store.resolve(path)


def test_a_name_is_fetched_once(fake: Memory, tmp_path: Path) -> None:
    assert store.cached() == {}
    path = store.resolve("fake:1m")
    assert path == tmp_path / "cache" / "models" / "fake.gguf" == store.resolve("Fake")
    assert path.read_bytes() == b"GGUF"
    assert fake.fetched == [0, 1]
    assert store.cached() == {"fake:1m": path}


def test_a_file_put_into_the_cache_needs_no_network(fake: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "models"
    folder.mkdir(parents=True)
    (folder / "fake.gguf").write_bytes(b"GGUF")
    assert store.resolve("fake").read_bytes() == b"GGUF"
    assert fake.fetched == []


def test_a_folder_is_refused_with_a_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"")
    with pytest.raises(FileError, match=r"is a folder; a GGUF file is expected, such as .*model\.gguf"):
        store.resolve(tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("smollm2:135", "the nearest name is smollm2:135m"),
        ("gpt-5", "known are smollm2:135m, gemma3:270m"),
        ("qwen2.5-coder", "several sizes; say which: qwen2.5-coder:0.5b, qwen2.5-coder:1.5b"),
        ("no/such/folder/m.gguf", "there is no file 'no/such/folder/m.gguf': no folder"),
        ("x" * 5000, r"'x{60}\.\.\.' is neither"),
        ("nul\0", "neither a file"),
    ],
)
def test_unknown_names(name: str, says: str) -> None:
    with pytest.raises(ModelNotFoundError, match=says):
        store.lookup(name)


def test_a_path_with_a_typing_error(tmp_path: Path) -> None:
    (tmp_path / "llama-3b.gguf").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match=r"the nearest is .*llama-3b\.gguf"):
        store.resolve(tmp_path / "lama-3b.gguf")


def test_the_catalogue_is_sound() -> None:
    entries = store.catalogue()
    assert [entry.name for entry in entries] == ["smollm2:135m", "gemma3:270m", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"]
    assert len({entry.sha256 for entry in entries}) == len({entry.file for entry in entries}) == len(entries)
    for entry in entries:
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.licence and entry.licence_url.startswith("https://")
        assert entry.sources and len({source.kind for source in entry.sources}) == len(entry.sources)
        assert find(entry.name) is entry
    assert find(entries_module.DEFAULT) is not None
