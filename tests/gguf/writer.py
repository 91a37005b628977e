"""A small GGUF writer that can also write what no file should hold."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


@dataclass(frozen=True)
class Value:
    """A metadata value as the file has it: the number of its type, and its bytes."""

    type: int
    raw: bytes


@dataclass(frozen=True)
class Entry:
    """A line of the tensor table. ``ne`` is GGUF's order, fastest axis first; ``offset`` None: after the tensor before."""

    name: bytes
    ne: Sequence[int] = (32,)
    type: int = 0
    data: bytes = bytes(128)
    offset: int | None = None
    axes: int | None = None


@dataclass
class Head:
    """A file to be. ``key_count`` and ``tensor_count``: what it announces, if not what it has."""

    pairs: list[tuple[bytes, Value]] = field(default_factory=list)
    tensors: list[Entry] = field(default_factory=list)
    version: int = 3
    alignment: int = 32
    key_count: int | None = None
    tensor_count: int | None = None

    def build(self) -> bytes:
        """The bytes of the whole file; its last tensor is not padded."""
        table, data = self._table_and_data()
        keys = len(self.pairs) if self.key_count is None else self.key_count
        count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        head = b"GGUF" + struct.pack("<IQQ", self.version, count, keys)
        head += b"".join(string(key) + struct.pack("<I", value.type) + value.raw for key, value in self.pairs) + table
        return _pad(head, self.alignment) + data if self.tensors else head

    def _table_and_data(self) -> tuple[bytes, bytes]:
        table = data = b""
        for entry in self.tensors:
            data = _pad(data, self.alignment)
            offset = len(data) if entry.offset is None else entry.offset
            axes = len(entry.ne) if entry.axes is None else entry.axes
            table += string(entry.name) + struct.pack(f"<I{len(entry.ne)}QIQ", axes, *entry.ne, entry.type, offset)
            data += entry.data
        return table, data


def string(raw: bytes, length: int | None = None) -> bytes:
    """A string as GGUF stores it, perhaps with a length that is not its own."""
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def scalar(type: int, value: float) -> Value:
    """A number or bool."""
    return Value(type, struct.pack("<" + FORMATS[type], value))


def text(raw: bytes) -> Value:
    """A string."""
    return Value(STRING, string(raw))


def array(type: int, items: Iterable[bytes], count: int | None = None) -> Value:
    """An array of items that are encoded already, perhaps with a count that is not theirs."""
    items = list(items)
    return Value(ARRAY, struct.pack("<IQ", type, len(items) if count is None else count) + b"".join(items))


def numbers(type: int, values: Iterable[float]) -> Value:
    """An array of numbers or bools."""
    return array(type, [scalar(type, value).raw for value in values])


def _pad(raw: bytes, alignment: int) -> bytes:
    return raw + bytes(-len(raw) % max(alignment, 1))
