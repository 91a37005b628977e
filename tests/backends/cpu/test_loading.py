"""Weights on their way into memory: the same however they are read, and errors in words."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localllm.archs import build
from localllm.backends.base import Options
from localllm.backends.cpu import loading, weights
from localllm.backends.cpu.weights import Weights, upload
from localllm.errors import BackendError, TruncatedError
from localllm.gguf import open_gguf
from tests import tiny


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("models") / "a.gguf"
    tiny.write(path, type="Q4_K", embed=256, ff=512, types={"attn_v.weight": "Q6_K", "ffn_down.weight": "F16"}, experts=3)
    return path


def begun(path: Path, threads: int = 2) -> Weights:
    """Weights that are being read; the file is closed again."""
    with open_gguf(path) as file:
        return upload(build(file), file, Options(threads), None)


def packed(path: Path, threads: int = 2) -> NDArray[np.uint8]:
    """All matrices, as they lie in memory."""
    found = begun(path, threads)
    found.loading.wait()
    return np.array(found.arena.take(0).base)


def test_the_same_however_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = packed(path)
    assert expected.any()
    monkeypatch.setattr(weights, "_PIECE", 1)  # a group of rows at a time
    assert np.array_equal(packed(path, 1), expected)
    assert np.array_equal(packed(path, 3), expected)
    monkeypatch.delattr(os, "pread", raising=False)  # as on Windows: through Python
    assert np.array_equal(packed(path), expected)


def test_a_file_that_shrinks_is_an_error(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tmp_path / "b.gguf"
    for pread in (True, False):
        short.write_bytes(path.read_bytes())
        with open_gguf(short) as file:
            os.truncate(short, path.stat().st_size - 100_000)
            with monkeypatch.context() as patch:
                patch.setattr(weights, "read_vector", lambda source, name: None)  # they lie behind the end as well
                found = upload(build(file), file, Options(2), None)
            for _ in range(2):
                with pytest.raises(TruncatedError, match="became shorter"):
                    found.loading.wait()
        if pread:
            monkeypatch.delattr(os, "pread", raising=False)


def test_progress_ends_with_all_bytes(path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    found = begun(path)
    found.loading.wait(lambda *step: seen.append(step))
    with open_gguf(path) as file:
        total = sum(tensor.nbytes for tensor in file.tensors.values() if len(tensor.shape) > 1)
    assert seen[-1] == ("load", total, total)
    assert [step[1] for step in seen] == sorted(step[1] for step in seen)


def test_a_load_that_is_stopped_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_PIECE", 1)
    found = begun(path)
    found.loading.stop()
    if not found.loading._table[:, loading._DONE].all():
        with pytest.raises(BackendError, match="stopped"):
            found.loading.wait()
    assert not [thread for thread in threading.enumerate() if thread.name == "localllm-load"]


def test_nothing_to_load_is_no_error() -> None:
    loading.Loading([], 2, None).wait()


def test_memory_goes_with_the_weights(path: Path) -> None:
    found = begun(path)
    found.loading.wait()
    arena = weakref.ref(found.arena)
    gc.disable()
    try:
        del found
        assert arena() is None
    finally:
        gc.enable()


def test_fewer_threads_than_wished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, start, started = packed(path), threading.Thread.start, list[threading.Thread]()

    def refuse(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert np.array_equal(packed(path, 3), expected)
    with pytest.raises(BackendError, match="no thread can be started"):
        begun(path)
