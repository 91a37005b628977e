"""``pull`` and ``list``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from localllm.store import entries
from tests.cli.fakes import Ran
from tests.store.fakes import Memory, entry_of

Run = Callable[..., Ran]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The catalogue holds one model, fake:1m."""
    memory = Memory([b"GG", b"UF"])
    monkeypatch.setattr(entries, "_ENTRIES", (entry_of(b"GGUF", memory),))
    return memory


def test_pull_shows_the_licence_and_gives_the_path(run: Run, source: Memory, cache: Path) -> None:
    first, second = run("pull", "fake"), run("pull", "fake:1m")
    assert first.code == second.code == 0
    assert first.out == second.out == f"{cache / 'fake.gguf'}\n"
    assert (cache / "fake.gguf").read_bytes() == b"GGUF"
    assert first.err == "fake:1m: Fake, 0 MB, licence: MIT (about:blank)\n" and second.err == ""
    assert source.fetched == [0, 1]


def test_pull_wants_a_name(run: Run, source: Memory, file: Path) -> None:
    ran = run("pull", file)
    assert ran.code == 3 and "is neither a file nor a known name; known are fake:1m" in ran.err


def test_pull_interrupted(run: Run, source: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(part: int, folder: Path, seen: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(source, "fetch", interrupted)
    ran = run("pull", "fake")
    assert ran.code == 130 and "the next try goes on from there" in ran.err


def test_list(run: Run, source: Memory, cache: Path) -> None:
    assert run("list").out.splitlines()[1].split() == ["fake:1m", "0", "MB", "MIT", "not", "fetched"]
    run("pull", "fake")
    assert run("list").out.splitlines()[1].split()[-1] == str(cache / "fake.gguf")
    (record,) = json.loads(run("list", "--json").out)
    assert record["name"] == "fake:1m" and record["bytes"] == 4 and record["path"] == str(cache / "fake.gguf")
