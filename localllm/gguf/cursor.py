"""Reads the head of a GGUF file front to back, never beyond what is there and never more of it than is asked for (in steps)."""

from __future__ import annotations

import struct
from typing import Any, NoReturn

from localllm.errors import GGUFError, TruncatedError
from localllm.gguf.source import File

MAX_HEAD = 128 << 20
"""Bytes of metadata and tensor table together. The largest real ones are about 30 MB."""
_STEP = 1 << 20
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A place in the head of a file. ``what`` in its methods names for messages the thing that is read."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._base = 0  # place in the file of _buffer[0]
        self._buffer = bytearray()
        self._at = 0

    @property
    def place(self) -> int:
        """Offset in the file of the next byte."""
        return self._base + self._at

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.file.size - self.place

    def fail(self, message: str) -> NoReturn:
        """Raise GGUFError about this file."""
        raise GGUFError(f"{self.file.label}: {message}; the file is damaged or was made wrongly")

    def require(self, n: int, what: str) -> None:
        """Raise unless ``n`` more bytes are there: GGUFError for a number that no head can have, TruncatedError if the file ends before."""
        if self.place + n > MAX_HEAD:
            self.fail(f"{what} would take {n} bytes, more than a file's head can have ({MAX_HEAD})")
        if n > self.left:
            missing = n - self.left
            raise TruncatedError(f"{self.file.label}: ends inside {what}, at least {missing} bytes are missing; fetch the file again")

    def take(self, n: int, what: str) -> bytes:
        """The next ``n`` bytes."""
        start = self._advance(n, what)
        return bytes(memoryview(self._buffer)[start : start + n])

    def peek(self, n: int) -> bytes:
        """The next ``n`` bytes, or fewer at the end of the file, without moving."""
        n = min(n, self.left)
        self._fill(n)
        return bytes(memoryview(self._buffer)[self._at : self._at + n])

    def unpack(self, layout: struct.Struct, what: str) -> Any:
        """The next value, one of ``layout``."""
        return layout.unpack_from(self._buffer, self._advance(layout.size, what))[0]

    def u32(self, what: str) -> int:
        """The next unsigned 32-bit number."""
        return int(self.unpack(_U32, what))

    def u64(self, what: str) -> int:
        """The next unsigned 64-bit number."""
        return int(self.unpack(_U64, what))

    def _advance(self, n: int, what: str) -> int:
        if self._at + n > len(self._buffer):
            self.require(n, what)
            self._fill(n)
        start = self._at
        self._at += n
        return start

    def _fill(self, n: int) -> None:
        """Have ``n`` bytes from here on in the buffer; what lies behind is let go."""
        if self._at + n <= len(self._buffer):
            return
        del self._buffer[: self._at]
        self._base += self._at
        self._at = 0
        end = self._base + len(self._buffer)
        more = bytearray(min(max(n - len(self._buffer), _STEP), self.file.size - end))
        self.file.read_into(end, memoryview(more))
        self._buffer += more
