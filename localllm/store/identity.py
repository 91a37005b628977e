"""Which weights are these? A digest that is cheap enough for every start."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from localllm.gguf import GGUFFile
from localllm.gguf.source import File

_SAMPLE = 512
"""Bytes that are looked at of each tensor's beginning, middle and end."""
_MOST_HEADER = 64 << 20


def identity(file: GGUFFile) -> Callable[[], bytes]:
    """A function that gives the digest (32 bytes) of an open file; it may be called after the file was closed.

    What is digested: of every part its size, its time of change and all before its first tensor, and samples of every tensor. A file
    that is changed in one place has another time; a copy with another time counts as another file, which costs time and no harm.
    """
    places = {name: file.place(name) for name in file.tensors}
    sizes = {name: tensor.nbytes for name, tensor in file.tensors.items()}

    def digest() -> bytes:
        total = hashlib.blake2b(digest_size=32)
        starts: dict[File, int] = {}
        for part, offset in places.values():
            starts[part] = min(offset, starts.get(part, offset))
        for part, start in starts.items():
            status = os.fstat(part.fileno())
            total.update(repr((status.st_size, status.st_mtime_ns, start)).encode())
            total.update(_read(part, 0, min(start, _MOST_HEADER)))
        for name, (part, offset) in places.items():
            for at in _samples(sizes[name]):
                total.update(_read(part, offset + at, min(_SAMPLE, sizes[name])))
        return total.digest()

    return digest


def _samples(size: int) -> tuple[int, ...]:
    """Where samples of so many bytes begin."""
    last = max(0, size - _SAMPLE)
    return (0, last // 2, last) if last else (0,)


def _read(part: File, offset: int, size: int) -> bytearray:
    data = bytearray(size)
    part.read_into(offset, memoryview(data))
    return data
