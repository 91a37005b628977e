"""One GGUF file, or one part of a split model: magic, version, metadata, tensor table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localllm.errors import GGUFError, UnsupportedError
from localllm.gguf.cursor import Cursor
from localllm.gguf.foreign import HEAD, recognise
from localllm.gguf.metadata import read_metadata
from localllm.gguf.source import File
from localllm.gguf.tensors import Tensor, read_tensors

MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Part:
    """What the head of one file says."""

    version: int
    metadata: dict[str, Any]
    tensors: list[Tensor]


def read_part(file: File, shard: int) -> Part:
    """Read and check the head of ``file``, part number ``shard`` of the model (from 0)."""
    cursor = Cursor(file)
    head = cursor.peek(HEAD)
    if not head or head[:4] != MAGIC[: len(head)]:
        raise GGUFError(f"{file.label}: {recognise(head, file.size)}")
    cursor.take(4, "its magic")
    version = _version(cursor)
    tensor_count = cursor.u64("its header")
    metadata = read_metadata(cursor, cursor.u64("its header"))
    return Part(version, metadata, read_tensors(cursor, tensor_count, metadata, shard))


def _version(cursor: Cursor) -> int:
    version = cursor.u32("its header")
    label = cursor.file.label
    if version in (2, 3):
        return version
    if version == 1:
        raise UnsupportedError(f"{label}: is GGUF version 1, expected 2 or 3; get a newer file of this model, or convert it again")
    if version and version & 0xFFFF == 0:
        raise UnsupportedError(
            f"{label}: is a big-endian GGUF file, for other machines; get the little-endian one, or convert it with gguf-py"
        )
    raise UnsupportedError(f"{label}: is GGUF version {version}, expected 2 or 3; a newer version of localllm may know it")
