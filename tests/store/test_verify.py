"""Digests are computed once and hold until the file changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from localllm.store import verify
from localllm.store.verify import verified

CONTENT = b"weights"
SHA = hashlib.sha256(CONTENT).hexdigest()


def test_right_wrong_and_missing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    assert not verified(path, SHA, len(CONTENT))
    path.write_bytes(CONTENT)
    assert verified(path, SHA, len(CONTENT))
    assert not verified(path, SHA, len(CONTENT) + 1)
    assert not verified(path, "0" * 64, len(CONTENT))


def test_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    assert verified(path, SHA, len(CONTENT))
    with monkeypatch.context() as patch:
        patch.setattr(verify, "digest", lambda path: pytest.fail("read again"))
        assert verified(path, SHA, len(CONTENT))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    assert verified(path, SHA, len(CONTENT))
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(1, 1))
    assert not verified(path, SHA, len(CONTENT))


@pytest.mark.parametrize("record", ["", "[]", "{", '{"sha256": 3}'])
def test_a_bad_record_is_no_record(tmp_path: Path, record: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    path.with_name("m.gguf.json").write_text(record)
    assert verified(path, SHA, len(CONTENT))
