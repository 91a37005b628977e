from __future__ import annotations

import os
import shutil
from pathlib import Path

from localllm.gguf import open_gguf
from localllm.store.identity import identity
from tests import tiny


def digest(path: Path) -> bytes:
    with open_gguf(path) as file:
        found = identity(file)
    return found()  # the file may be closed meanwhile


def test_what_changes_a_file_changes_its_identity(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "a.gguf")
    first = digest(path)
    assert len(first) == 32 and digest(path) == first
    copy = tmp_path / "b.gguf"
    shutil.copy2(path, copy)
    assert digest(copy) == first
    data, times = bytearray(copy.read_bytes()), copy.stat()
    data[-1] ^= 1
    copy.write_bytes(data)
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digest(copy) != first
    os.utime(path, ns=(1, 1))
    assert digest(path) != first
    assert digest(tiny.write(tmp_path / "c.gguf", metadata={"llama.rope.freq_base": 5e5})) != first
