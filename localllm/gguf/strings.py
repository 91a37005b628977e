"""Arrays of strings, such as vocabularies: found fast, decoded when they are looked at.

In the file a string is its length (u64) and its bytes, so each can only be found from the one before. ``_chain`` walks a window of them at
once: it guesses that every place whose next eight bytes read as a number below 256 is a length, and then keeps what really links up.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from localllm.gguf.cursor import Cursor
from localllm.gguf.source import quote

_WINDOW = 65536 + 7
_FEW = 64
# Runs in a window: real vocabularies have one or two, and a window made to mislead gets no more time than this.
_RUNS = 16
_U64 = struct.Struct("<Q")


class Strings(Sequence[str]):
    """An immutable sequence of strings over the bytes of the file.

    Bytes that are not UTF-8 read as U+FFFD; ``raw`` and ``raws`` give them as they are.
    """

    __slots__ = ("_blob", "_fields")

    def __init__(self, blob: bytes, fields: NDArray[np.uint32]) -> None:
        """``fields`` (n + 1): where in ``blob`` each string's length is, and where the last string ends."""
        self._blob = blob
        self._fields = fields

    def __len__(self) -> int:
        return len(self._fields) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.raw(index).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return (raw.decode("utf-8", "replace") for raw in self.raws())

    def __repr__(self) -> str:
        shown = [quote(string, 40) for string in self[:3]]
        return f"<Strings: {len(self)}: {', '.join(shown)}{', ...' if len(self) > 3 else ''}>"

    def raw(self, index: int) -> bytes:
        """The bytes of one string; IndexError beyond the end, negative indices count from it."""
        index = range(len(self))[index]
        return self._blob[int(self._fields[index]) + 8 : int(self._fields[index + 1])]

    def raws(self) -> list[bytes]:
        """The bytes of all strings."""
        blob = self._blob
        return [blob[a + 8 : b] for a, b in pairwise(self._fields.tolist())]


def read_strings(cursor: Cursor, count: int, what: str) -> Strings:
    """The next ``count`` strings."""
    cursor.require(8 * count, what)
    parts: list[bytes] = []
    fields = np.empty(count + 1, np.uint32)
    done = place = 0
    while done < count:
        found, end = _chain(cursor.peek(min(_WINDOW, 64 + 32 * (count - done))), count - done)
        if not len(found):
            cursor.require(8, what)
        fields[done : done + len(found)] = found + place
        parts.append(cursor.take(end, what))
        done += len(found)
        place += end
    fields[count] = place
    return Strings(b"".join(parts), fields)


def _chain(window: bytes, count: int) -> tuple[NDArray[np.int64], int]:
    """Where in ``window`` the lengths of the next strings are, ``count`` at most, and where the last one ends (maybe beyond the window)."""
    words = (len(window) - 7) // 8
    if count < _FEW or words < _FEW:
        return _plain(window, 0, count)
    small = np.empty((words, 8), np.bool_)
    for k in range(8):
        np.less(np.frombuffer(window, "<u8", words, k), 256, out=small[:, k])
    guesses = np.flatnonzero(small)
    if not 0 < len(guesses) < words:
        # Zeros, or no strings at all: most guesses would fail.
        return _plain(window, 0, count)
    return _follow(window, count, guesses)


def _follow(window: bytes, count: int, guesses: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Follow the strings through runs of guesses that link up, and step plainly where a guess fails."""
    ends = guesses + 8 + np.frombuffer(window, np.uint8)[guesses]
    breaks = np.append(np.flatnonzero(ends[:-1] != guesses[1:]), len(guesses) - 1)
    runs: list[NDArray[np.int64]] = []
    place = 0
    while count > 0 and place + 8 <= len(window):
        i = int(np.searchsorted(guesses, place))
        if len(runs) == _RUNS:
            run, place = _plain(window, place, count)
        elif i < len(guesses) and guesses[i] == place:
            j = min(int(breaks[np.searchsorted(breaks, i)]), i + count - 1)
            run, place = guesses[i : j + 1], int(ends[j])
        else:
            run, place = _plain(window, place, 1)
        runs.append(run)
        count -= len(run)
    return np.concatenate(runs), place


def _plain(window: bytes, place: int, count: int) -> tuple[NDArray[np.int64], int]:
    found = []
    last = len(window) - 8
    length = _U64.unpack_from
    while count > 0 and place <= last:
        found.append(place)
        place += 8 + length(window, place)[0]
        count -= 1
    return np.array(found, np.int64), place
