"""What is written to disk and when, and what is read again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from localllm.backends.base import Line
from localllm.generation import saving
from localllm.generation.prefix import PrefixCache
from localllm.generation.saving import SavedLines
from localllm.store.kv import LineFolder
from tests.generation.fakes import FakeLine, FakeSession

LONG = list(range(1, 201))
SLOW = 0.01
"""Seconds a token: a line of 100 takes long enough to be written."""


class Disk:
    """A process with a session, a cache and saved lines."""

    def __init__(self, root: Path, budget: int = 10**6, ram: int = 10**6) -> None:
        self.session = FakeSession()
        self.folder = LineFolder(root, bytes(32), budget)
        self.saved = SavedLines(lambda: self.folder, self.restore)
        self.cache = PrefixCache(self.session.new_line, lambda held: ram, self.saved)
        self.restored = 0

    def restore(self, file: FileIO) -> Line:
        self.restored += 1
        return self.session.restore(file)

    def compute(self, prompt: Sequence[int], seconds: float = SLOW) -> tuple[int, str]:
        """What was reused of a prompt; its line comes back."""
        past = self.cache.take(prompt)
        assert isinstance(past.line, FakeLine) and past.line.tokens == list(past.tokens) == list(prompt[: len(past.tokens)])
        past.line.tokens += prompt[len(past.tokens) :]
        self.cache.keep(prompt, past.line, seconds)
        self.saved.wait()
        return len(past.tokens), past.note

    def lengths(self) -> list[int]:
        return sorted(len(line.tokens) for line in self.folder.lines())

    def end(self) -> None:
        self.cache.close()
        assert not self.session.lines


def test_another_process_goes_on(tmp_path: Path) -> None:
    first = Disk(tmp_path)
    assert first.compute(LONG) == (0, "nothing is cached yet, nor on disk")
    assert first.compute(LONG) == (199, "memory")
    first.end()
    second = Disk(tmp_path)
    assert second.compute(LONG) == (199, "disk")
    assert second.compute(LONG) == (199, "memory")
    assert second.restored == 1
    second.end()
    third = Disk(tmp_path)
    assert third.compute([*LONG[:120], *LONG]) == (120, "disk")
    assert third.compute([9] * 100) == (0, "no cached text begins like this one, nor on disk")
    third.end()


def test_what_is_quick_or_short_is_neither_written_nor_read(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.compute(LONG, seconds=0.9 * saving.PAYS / len(LONG))
    disk.compute(LONG[:50], seconds=0)
    disk.end()
    assert Disk(tmp_path).lengths() == []
    disk = Disk(tmp_path)
    disk.compute(LONG)
    disk.end()
    other = Disk(tmp_path)
    assert other.compute(LONG[:60]) == (0, "nothing is cached yet")  # computing them is not worth a look
    assert other.compute(LONG[:64]) == (60, "memory")
    assert other.restored == 0
    other.end()


def test_reading_must_be_quicker_than_computing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path)
    disk.compute(LONG)
    disk.end()
    monkeypatch.setattr(saving, "_READ", 1000)  # bytes a second
    other = Disk(tmp_path)
    assert other.compute(LONG)[0] == other.restored == 0
    other.end()


def test_a_text_that_grows_is_written_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    long = list(range(1000))
    written: list[int] = []
    for n in range(100, 900, 50):
        disk.compute(long[:n], seconds=1)
        if disk.lengths() != written[-1:]:
            assert len(disk.lengths()) == 1  # the longer file has all of the shorter one
            written += disk.lengths()
    assert written == [100, 150, 200, 300, 400, 550, 750]
    disk.end()
    assert Disk(tmp_path).lengths() == [850]


def test_without_room_in_memory_there_is_still_the_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path, ram=0)
    disk.compute(LONG)
    assert disk.cache.bytes == 0
    assert disk.compute(LONG) == (199, "disk")
    disk.end()


def test_without_room_on_disk_nothing_is_written(tmp_path: Path) -> None:
    disk = Disk(tmp_path, budget=100)
    disk.compute(LONG)
    disk.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif("os.name == 'nt' or os.geteuid() == 0", reason="root may write everywhere")
def test_a_folder_that_cant_be_written_costs_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    disk = Disk(tmp_path)
    disk.compute(LONG)
    disk.end()


def test_a_file_whose_line_is_damaged_is_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.compute(LONG)
    disk.end()
    (path,) = tmp_path.glob("*/*")
    path.write_bytes(path.read_bytes()[:-8])  # a token less
    other = Disk(tmp_path)
    assert other.compute(LONG[:150])[0] == 0
    assert other.restored == 1 and not path.exists()
    other.end()


def test_an_interrupt_stops_the_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going, wait = threading.Event(), threading.Event()

    def save(self: FakeLine, file: BinaryIO) -> None:
        file.write(memoryview(bytes(100)))
        going.set()
        assert wait.wait(20)
        file.write(memoryview(bytes(100)))

    monkeypatch.setattr(FakeLine, "save", save)
    disk = Disk(tmp_path)
    disk.cache.keep(LONG, FakeLine(disk.session, LONG), SLOW)
    assert going.wait(20)
    writer = disk.saved._writer
    assert writer is not None
    join, calls = writer.wait, []

    def interrupted() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        wait.set()
        join()

    monkeypatch.setattr(writer, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        disk.saved.wait()
    assert len(calls) == 2 and disk.lengths() == [] and list(tmp_path.glob("*/*")) == []
    disk.cache.clear()
    assert not disk.session.lines


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    disks = [Disk(tmp_path, budget=12_000) for _ in range(2)]
    texts = [np.random.default_rng(n).integers(0, 100, 200).tolist() for n in range(12)]
    wrong: list[object] = []

    def work(disk: Disk) -> None:
        try:
            for _ in range(2):
                for text in texts:
                    disk.compute(text)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(disk,)) for disk in disks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for disk in disks:
        disk.end()
    assert not wrong
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= 12_000
    disk = Disk(tmp_path)
    for line in disk.folder.lines():
        assert line.tokens.tolist() in texts
        assert disk.compute([*line.tokens.tolist(), 1])[0] == 200
    disk.end()
