"""The key-value pairs at the head of a GGUF file (layout: ggml's docs/gguf.md).

A pair is a key (string), the number of the value's type (u32) and the value. An array is the number of its elements' type (u32), their
count (u64) and the elements. Every count is held against the bytes that are left before anything is made from it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm.gguf.cursor import Cursor
from localllm.gguf.source import quote
from localllm.gguf.strings import Strings, read_strings

MAX_KEYS = 1 << 16
MAX_NAME = (1 << 16) - 1
MAX_STRINGS = 1 << 22
"""Strings in all arrays of a file together. The largest real vocabularies have about 800,000, merges included."""
MAX_ARRAYS = 1 << 14
"""Arrays inside arrays, of a file together."""
MAX_DEPTH = 4

_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    _BOOL: struct.Struct("<B"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_DTYPES = {type: np.dtype(layout.format) for type, layout in _SCALARS.items()}
_SMALLEST = {_STRING: 8, _ARRAY: 12} | {type: layout.size for type, layout in _SCALARS.items()}


def read_name(cursor: Cursor, what: str) -> str:
    """The next string, a name: UTF-8, not empty and not absurdly long."""
    length = cursor.u64(what)
    if not 0 < length <= MAX_NAME:
        cursor.fail(f"the name of {what} has {length} bytes, expected 1 to {MAX_NAME}")
    raw = cursor.take(length, what)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        cursor.fail(f"the name of {what} is not UTF-8: {quote(raw.decode('latin-1'))}")


def read_metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    """The next ``count`` pairs, in order.

    Values: int, float, bool, str; read-only arrays of numbers; Strings; lists of these for arrays of arrays.
    """
    if count > MAX_KEYS:
        cursor.fail(f"announces {count} metadata keys, expected at most {MAX_KEYS}")
    cursor.require(14 * count, "its metadata")
    values = _Values(cursor)
    metadata: dict[str, Any] = {}
    for i in range(count):
        key = read_name(cursor, f"metadata key {i + 1} of {count}")
        if key in metadata:
            cursor.fail(f"metadata key {quote(key)} is there twice")
        what = f"metadata {quote(key)}"
        metadata[key] = values.read(cursor.u32(what), what)
    return metadata


class _Values:
    """Reads values, and counts what is dear over all of them."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._strings = 0
        self._arrays = 0

    def read(self, type: int, what: str, depth: int = 0) -> Any:
        cursor = self._cursor
        if type == _STRING:
            return cursor.take(cursor.u64(what), what).decode("utf-8", "replace")
        if type == _ARRAY:
            return self._array(what, depth + 1)
        if type not in _SCALARS:
            cursor.fail(f"{what} has type {type}, which GGUF does not have (0 to 12)")
        value = cursor.unpack(_SCALARS[type], what)
        if type == _BOOL and value > 1:
            cursor.fail(f"{what} is a bool of value {value}, expected 0 or 1")
        return bool(value) if type == _BOOL else value

    def _array(self, what: str, depth: int) -> Any:
        cursor = self._cursor
        if depth > MAX_DEPTH:
            cursor.fail(f"{what} is an array nested deeper than {MAX_DEPTH}")
        type = cursor.u32(what)
        count = cursor.u64(what)
        if type not in _SMALLEST:
            cursor.fail(f"{what} is an array of type {type}, which GGUF does not have (0 to 12)")
        cursor.require(count * _SMALLEST[type], f"{what} (an array of {count})")
        if type == _STRING:
            return self._string_array(count, what)
        if type == _ARRAY:
            return self._nested(count, what, depth)
        return _numbers(cursor, type, count, what)

    def _string_array(self, count: int, what: str) -> Strings:
        self._strings += count
        if self._strings > MAX_STRINGS:
            self._cursor.fail(f"{what} is an array of {count} strings, expected at most {MAX_STRINGS} in a file")
        return read_strings(self._cursor, count, what)

    def _nested(self, count: int, what: str, depth: int) -> list[Any]:
        self._arrays += count
        if self._arrays > MAX_ARRAYS:
            self._cursor.fail(f"{what} is an array of {count} arrays, expected at most {MAX_ARRAYS} in a file")
        return [self.read(_ARRAY, what, depth) for _ in range(count)]


def _numbers(cursor: Cursor, type: int, count: int, what: str) -> NDArray[Any]:
    dtype = _DTYPES[type]
    values = np.frombuffer(cursor.take(count * dtype.itemsize, what), dtype)
    if type != _BOOL:
        return values
    if count and int(values.max()) > 1:
        cursor.fail(f"{what} is an array of bools with a value {values.max()}, expected 0 or 1")
    return values.view(np.bool_)
