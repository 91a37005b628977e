"""Other things that are called .gguf, and paths that are no files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localllm.errors import FileError, GGUFError, TruncatedError
from localllm.gguf import open_gguf
from tests.gguf.conftest import Save

FOREIGN = {
    "empty": (b"", "is empty"),
    "page": (b"\n <!DOCTYPE html><html><body>Sign in</body></html>", "is a web page"),
    "page in capitals": (b"<HTML>", "is a web page"),
    "page with a byte order mark": (b"\xef\xbb\xbf<!doctype html>", "is a web page"),
    "xml": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "is a web page"),
    "safetensors": (b"\x40\0\0\0\0\0\0\0" + b'{"__metadata__":{}}'.ljust(64), "is a safetensors file"),
    "zip": (b"PK\x03\x04\0\0", "is a zip archive"),
    "pickle": (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "is a PyTorch checkpoint"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "is a Git LFS pointer"),
    "ggml": (b"lmgg\0\0\0\0", "GGUF replaced in 2023"),
    "ggjt": (b"tjgg\3\0\0\0", "GGUF replaced in 2023"),
    "ggmf": (b"fmgg\1\0\0\0", "GGUF replaced in 2023"),
    "gzip": (b"\x1f\x8b\x08\0", "is compressed"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
    "zeros": (bytes(4096), "begins with zeros"),
    "answer of a server": (b'{"error":"Repository not found"}', "Repository not found"),
    "one word": (b"Entry not found\x0a", "it says 'Entry not found'"),
    "text cut in a character": ("é".encode() * 255 + b"xx\xc3", "is text"),
    "noise": (b"\xde\xad\xbe\xef" * 200, "it begins with de ad be ef"),
    "noise that could be a length": (b"\xff\xff\xff\xff\xff\xff\xff\xff{", "it begins with ff ff ff ff"),
    "magic, wrong case": (b"ggUF\3\0\0\0", "it begins with 67 67 55 46"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_it_is_recognised(what: str, save: Save) -> None:
    content, message = FOREIGN[what]
    with pytest.raises(GGUFError) as caught:
        open_gguf(save(content))
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_the_start_of_the_magic_is_a_cut_file(save: Save) -> None:
    with pytest.raises(TruncatedError, match="at least 3 bytes"):
        open_gguf(save(b"G"))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        open_gguf(tmp_path / "none.gguf")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder"):
        open_gguf(tmp_path)


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    for name in ("a\0b.gguf", "x" * 5000):
        with pytest.raises(FileError):
            open_gguf(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(FileError, match="device or a pipe"):
        open_gguf(tmp_path / "pipe.gguf")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs permissions that bind this user")
def test_a_file_that_may_not_be_read(save: Save) -> None:
    path = save(b"GGUF")
    path.chmod(0)
    with pytest.raises(FileError, match="permissions"):
        open_gguf(path)
