"""Reading tensors: from many threads, after closing, from a file that changes, with and without preadv."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localllm.errors import FileError, OptionError, TruncatedError
from localllm.gguf import open_gguf, source
from tests.gguf.conftest import Save
from tests.gguf.writer import Entry, Head

DATA = np.random.default_rng(0).integers(0, 256, (64, 128), np.uint8)


@pytest.fixture
def path(save: Save) -> Path:
    return save(Head([], [Entry(b"first"), Entry(b"w", ne=(32, 64), data=DATA.tobytes())]))


@pytest.fixture(params=["preadv", "seek"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of reading; Windows has the second only."""
    if request.param == "seek":
        monkeypatch.setattr(source, "_preadv", None)
    elif source._preadv is None:
        pytest.skip("this system has no preadv")


@pytest.mark.usefixtures("way")
def test_threads_read_what_they_asked_for(path: Path) -> None:
    with open_gguf(path) as file:

        def rows(i: int) -> bool:
            first, count = i % 61, i % 3 + 1
            out = np.empty((count, 128), np.uint8)
            file.read_into("w", first, out)
            return np.array_equal(out, DATA[first : first + count])

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(rows, range(400)))


@pytest.mark.usefixtures("way")
def test_long_reads_go_in_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_STEP", 1000)
    assert np.array_equal(open_gguf(path).read("w"), DATA)


@pytest.mark.usefixtures("way")
def test_a_file_that_shrinks(path: Path) -> None:
    with open_gguf(path) as file:
        with path.open("r+b") as other:
            other.truncate(path.stat().st_size - 100)
        assert np.array_equal(file.read("first"), np.zeros((1, 128), np.uint8))
        with pytest.raises(TruncatedError, match="became shorter while it was read"):
            file.read("w")


def test_an_error_of_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    file = open_gguf(path)
    monkeypatch.setattr(source, "_preadv", fail)
    with pytest.raises(FileError, match="Input/output error"):
        file.read("w")


def test_a_closed_file_keeps_its_table(path: Path) -> None:
    with open_gguf(path) as file:
        pass
    file.close()
    assert file.tensors["w"].rows == 64
    with pytest.raises(FileError, match=r"is closed; open it again to read tensor 'w'"):
        file.read("w")


@pytest.mark.usefixtures("way")
def test_closing_waits_for_no_one_and_breaks_no_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, closed = threading.Event(), threading.Event()
    real = source.File._read_some

    def slow(self: source.File, offset: int, out: memoryview) -> int:
        reading.set()
        assert closed.wait(10)
        return real(self, offset, out)

    file = open_gguf(path)
    monkeypatch.setattr(source.File, "_read_some", slow)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(file.read, "w")
        assert reading.wait(10)
        file.close()
        closed.set()
        assert np.array_equal(result.result(), DATA)


def test_a_forgotten_file_closes_itself(path: Path) -> None:
    file = open_gguf(path)
    assert file._files is not None
    raw = file._files[0]._file
    assert not raw.closed
    del file
    gc.collect()
    assert raw.closed


@pytest.mark.parametrize(
    ("first", "out"),
    [
        (0, np.empty((1, 127), np.uint8)),
        (0, np.empty((128,), np.uint8)),
        (0, np.empty((1, 128), np.int8)),
        (0, np.empty((4, 256), np.uint8)[:, ::2]),
        (0, np.frombuffer(bytes(128), np.uint8).reshape(1, 128)),
        (-1, np.empty((1, 128), np.uint8)),
        (64, np.empty((1, 128), np.uint8)),
        (0, np.empty((65, 128), np.uint8)),
        (2**64, np.empty((1, 128), np.uint8)),
    ],
)
def test_wrong_places_are_refused(path: Path, first: int, out: Any) -> None:
    with open_gguf(path) as file, pytest.raises(OptionError, match="'w'"):
        file.read_into("w", first, out)


def test_no_rows_are_no_read(path: Path) -> None:
    with open_gguf(path) as file:
        file.read_into("w", 64, np.empty((0, 128), np.uint8))
