"""Fetching: the right bytes or an error, never half a file; what has arrived is not fetched again."""

from __future__ import annotations

import errno
import json
import multiprocessing
import time
from collections import namedtuple
from pathlib import Path

import pytest

from localllm.errors import DownloadError
from localllm.store.fetch import fetch
from localllm.store.lock import locked
from tests.store.fakes import Memory, entry_of

PARTS = [b"one, ", b"two, ", b"three"]
WHOLE = b"".join(PARTS)


def test_parts_become_the_file(tmp_path: Path) -> None:
    source = Memory(PARTS)
    seen: list[tuple[str, int, int]] = []
    path = fetch(entry_of(WHOLE, source), tmp_path / "new" / "folder", lambda *report: seen.append(report))
    assert path.read_bytes() == WHOLE
    assert source.fetched == [0, 1, 2]
    assert seen[0] == ("download", 0, len(WHOLE)) and seen[-1] == ("download", len(WHOLE), len(WHOLE))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert not path.with_name("fake.gguf.partial").exists()


def test_a_file_that_is_there_is_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "fake.gguf").write_bytes(WHOLE)
    source = Memory(PARTS)
    fetch(entry_of(WHOLE, source), tmp_path)
    assert source.fetched == []


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "fake.gguf").write_bytes(WHOLE[::-1])
    assert fetch(entry_of(WHOLE, Memory(PARTS)), tmp_path).read_bytes() == WHOLE


def test_resumes_after_the_parts_that_arrived(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="fake:1m could not be fetched: part-1 broke off"):
        fetch(entry_of(WHOLE, Memory(PARTS, broken=1)), tmp_path)
    assert not (tmp_path / "fake.gguf").exists()
    source = Memory(PARTS)
    assert fetch(entry_of(WHOLE, source), tmp_path).read_bytes() == WHOLE
    assert source.fetched == [1, 2]


@pytest.mark.parametrize("damage", ["data", "notes", "gone"])
def test_kept_parts_are_checked(tmp_path: Path, damage: str) -> None:
    with pytest.raises(DownloadError):
        fetch(entry_of(WHOLE, Memory(PARTS, broken=2)), tmp_path)
    data, notes = tmp_path / "fake.gguf.partial" / "memory.data", tmp_path / "fake.gguf.partial" / "memory.json"
    if damage == "data":
        data.write_bytes(data.read_bytes().replace(b"two", b"TWO"))
    elif damage == "notes":
        notes.write_text('[{"name": 1')
    else:
        data.unlink()
    source = Memory(PARTS)
    assert fetch(entry_of(WHOLE, source), tmp_path).read_bytes() == WHOLE
    assert source.fetched == ([1, 2] if damage == "data" else [0, 1, 2])


def test_a_wrong_digest_keeps_nothing(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}; nothing of it is kept"):
        fetch(entry_of(WHOLE, Memory([b"evil bytes"])), tmp_path)
    assert not (tmp_path / "fake.gguf").exists()
    assert fetch(entry_of(WHOLE, Memory([WHOLE])), tmp_path).read_bytes() == WHOLE


def test_the_next_source_is_tried(tmp_path: Path) -> None:
    first, second = Memory(PARTS, kind="first", broken=0), Memory([WHOLE], kind="second")
    assert fetch(entry_of(WHOLE, first, second), tmp_path).read_bytes() == WHOLE
    assert (first.fetched, second.fetched) == ([0], [0])


def test_all_sources_fail_and_all_are_named(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"part-0 broke off; part-1 broke off"):
        fetch(entry_of(WHOLE, Memory(PARTS, kind="a", broken=0), Memory(PARTS, kind="b", broken=1)), tmp_path)


def test_too_little_room_is_said_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(0, 0, 5_000_000))
    source = Memory(PARTS)
    with pytest.raises(DownloadError, match=r"needs 2,0\d\d MB more .* 5 MB are free"):
        fetch(entry_of(WHOLE, source, size=1_200_000_000), tmp_path)
    assert source.fetched == []


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DownloadError, match=r"disk of .* is full"):
        fetch(entry_of(WHOLE, Memory(PARTS)), tmp_path)


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"can't be used: .*LOCALLLM_CACHE"):
        fetch(entry_of(WHOLE, Memory(PARTS)), tmp_path / "file" / "models")


def _fetch_slowly(folder: Path, log: Path) -> None:
    class Slow(Memory):
        def fetch(self, part, folder, seen):  # type: ignore[no-untyped-def]
            with log.open("a") as file:
                file.write(f"{part}\n")
            time.sleep(0.05)
            yield from super().fetch(part, folder, seen)

    fetch(entry_of(WHOLE, Slow(PARTS)), folder)


def test_two_processes_fetch_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_fetch_slowly, args=(tmp_path, tmp_path / "log")) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert (tmp_path / "fake.gguf").read_bytes() == WHOLE
    assert (tmp_path / "log").read_text().split() == ["0", "1", "2"]


def test_waiting_for_another_reports_its_progress(tmp_path: Path) -> None:
    partial = tmp_path / "fake.gguf.partial"
    partial.mkdir()
    (partial / "memory.data").write_bytes(WHOLE[:7])
    holder = locked(tmp_path / ".fake.gguf.lock", lambda: None)
    holder.__enter__()
    seen: list[int] = []

    def release(what: str, done: int, total: int) -> None:
        if not seen:
            holder.__exit__(None, None, None)
        seen.append(done)

    fetch(entry_of(WHOLE, Memory(PARTS)), tmp_path, release)
    assert seen[0] == 7


def test_notes_are_json(tmp_path: Path) -> None:
    with pytest.raises(DownloadError):
        fetch(entry_of(WHOLE, Memory(PARTS, broken=1)), tmp_path)
    (note,) = json.loads((tmp_path / "fake.gguf.partial" / "memory.json").read_text())
    assert note["name"] == "part-0" and note["size"] == len(PARTS[0])
