"""The tensor table of a GGUF file.

An entry is a name (string), the number of axes (u32), their lengths (u64 each, fastest first), the number of the storage type (u32) and
the offset (u64) of the data in the data section, which begins at the next multiple of the alignment after the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from localllm.errors import TruncatedError, UnsupportedError
from localllm.gguf.cursor import Cursor
from localllm.gguf.metadata import read_name
from localllm.gguf.source import quote
from localllm.quant import base

MAX_TENSORS = 1 << 16
"""Tensors of a file. The largest real ones have a few thousand."""
MAX_AXES = 4
MAX_ALIGNMENT = 1 << 20
DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor is and what it looks like.

    ``shape`` is in NumPy's order, the reverse of GGUF's: a weight matrix is (out, in). ``type`` is the name of the storage format.
    ``row_bytes``: bytes of one row of the last axis. ``offset``: first byte in its file, which is number ``shard`` of ``GGUFFile.paths``.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    row_bytes: int
    nbytes: int
    offset: int
    shard: int

    @property
    def rows(self) -> int:
        """Rows of the last axis: the product of all others."""
        return math.prod(self.shape[:-1])


def read_tensors(cursor: Cursor, count: int, metadata: Mapping[str, Any], shard: int) -> list[Tensor]:
    """The next ``count`` entries, in order, checked against each other and the size of the file.

    Raises GGUFError for what can't be, TruncatedError if the file ends before its tensors do, UnsupportedError for an unknown type.
    """
    if count > MAX_TENSORS:
        cursor.fail(f"announces {count} tensors, expected at most {MAX_TENSORS}")
    cursor.require(25 * count, "its tensor table")
    alignment = _alignment(cursor, metadata)
    entries = [_entry(cursor, f"tensor {i + 1} of {count}") for i in range(count)]
    start = -(-cursor.place // alignment) * alignment
    tensors = [_tensor(cursor, entry, start, alignment, shard) for entry in entries]
    _check_places(cursor, tensors)
    return tensors


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


def _alignment(cursor: Cursor, metadata: Mapping[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        cursor.fail(f"general.alignment is {quote(str(alignment))}, expected a power of two up to {MAX_ALIGNMENT}")
    return alignment


def _entry(cursor: Cursor, what: str) -> _Entry:
    name = read_name(cursor, what)
    what = f"tensor {quote(name)}"
    axes = cursor.u32(what)
    if axes > MAX_AXES:
        cursor.fail(f"{what} has {axes} axes, expected at most {MAX_AXES}")
    shape = tuple(cursor.u64(what) for _ in range(axes))[::-1]
    return _Entry(name, shape, cursor.u32(what), cursor.u64(what))


def _tensor(cursor: Cursor, entry: _Entry, start: int, alignment: int, shard: int) -> Tensor:
    what = f"tensor {quote(entry.name)}"
    try:
        info = base.by_id(entry.type)
    except KeyError:
        raise UnsupportedError(f"{cursor.file.label}: {what} has type {entry.type}, which is not known; {_advice(entry.type)}") from None
    width = entry.shape[-1] if entry.shape else 1
    if 0 in entry.shape:
        cursor.fail(f"{what} has an axis of length 0: {list(entry.shape)}")
    if width % info.block_size:
        cursor.fail(f"{what} has rows of {width} values, expected a multiple of {info.block_size} for type {info.name}")
    if entry.offset % alignment:
        cursor.fail(f"{what} is at offset {entry.offset}, expected a multiple of the alignment {alignment}")
    row_bytes = width // info.block_size * info.block_bytes
    nbytes = math.prod(entry.shape[:-1]) * row_bytes
    if math.prod(entry.shape) >= 1 << 63 or start + entry.offset + nbytes >= 1 << 63:
        cursor.fail(f"{what} of shape {list(entry.shape)} at offset {entry.offset} is larger than any file")
    return Tensor(entry.name, entry.shape, info.name, row_bytes, nbytes, start + entry.offset, shard)


def _advice(type: int) -> str:
    if type in base.REMOVED:
        return f"it is {base.REMOVED[type]}, which no longer exists; get a newer file of this model"
    return "a newer version of localllm may know it"


def _check_places(cursor: Cursor, tensors: list[Tensor]) -> None:
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            cursor.fail(f"tensor {quote(tensor.name)} is there twice")
        names.add(tensor.name)
    placed = sorted(tensors, key=lambda tensor: tensor.offset)
    for a, b in pairwise(placed):
        if a.offset + a.nbytes > b.offset:
            cursor.fail(f"tensors {quote(a.name)} and {quote(b.name)} overlap at byte {b.offset}")
    if placed and (end := placed[-1].offset + placed[-1].nbytes) > cursor.file.size:
        raise TruncatedError(_truncated(cursor, placed, end))


def _truncated(cursor: Cursor, placed: list[Tensor], end: int) -> str:
    size = cursor.file.size
    first = next(tensor for tensor in placed if tensor.offset + tensor.nbytes > size)
    return (
        f"{cursor.file.label}: {end - size} bytes are missing: it has {size}, its tensors need {end}"
        f" ({quote(first.name)} is the first that is cut); fetch the file again"
    )
