"""The file that a line is saved in. Everything is little-endian; nothing in it is executed or trusted.

offset  bytes  field
0       8      magic
8       4      version
12      4      tokens of a page
16      8      type of the keys, such as "f16", filled up with zeros
24      8      type of the values
32      32     the session's fingerprint
64      8      tokens of the line
72      8      bytes of all pieces, their checksums included
80      4      CRC-32 of the 80 bytes before
84      ...    the pieces, each followed by the CRC-32 of all before it, checksums left out

How long a piece is follows from the tokens and the session, never from the file. What a piece is stands where it is written.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localllm.errors import SavedLineError

MAGIC, VERSION = b"\x93LLMLINE", 1
HEADER = struct.Struct("<8sII8s8s32sQQ")
_CHECK = struct.Struct("<I")
_WORD = struct.Struct("<Q")
_MOST_TOKENS = 1 << 31
_AT_ONCE = 1 << 20
"""Bytes that are asked of a file at once: a length that lies finds its end before memory is taken for it."""


class Target(Protocol):
    """A binary file to write to."""

    def write(self, data: memoryview, /) -> object: ...


class Source(Protocol):
    """A binary file to read from; it may give less than is asked for."""

    def read(self, n: int, /) -> bytes: ...
    def readinto(self, buffer: memoryview, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Form:
    """What two sessions must have in common to exchange lines. ``page``: tokens of a page; ``fingerprint``: 32 bytes."""

    page: int
    kv_type_k: str
    kv_type_v: str
    fingerprint: bytes

    @property
    def digest(self) -> str:
        """All of it in a few letters."""
        return f"{self.kv_type_k}-{self.kv_type_v}-{self.fingerprint.hex()}"

    def header(self, tokens: int, nbytes: int) -> bytes:
        """The fields before the header's checksum."""
        return HEADER.pack(MAGIC, VERSION, self.page, self.kv_type_k.encode(), self.kv_type_v.encode(), self.fingerprint, tokens, nbytes)


class Writer:
    """Writes a line; ``pieces``: bytes of each piece that will come."""

    def __init__(self, file: Target, form: Form, tokens: int, pieces: int, nbytes: int) -> None:
        self._file, self._check = file, 0
        self._put(memoryview(form.header(tokens, nbytes + pieces * _CHECK.size)))

    def piece(self, data: NDArray[Any]) -> None:
        """A C-contiguous array's bytes."""
        self._put(data.reshape(-1).view(np.uint8).data)

    def word(self, value: int) -> None:
        """A piece of one number."""
        self._put(memoryview(_WORD.pack(value)))

    def _put(self, data: memoryview) -> None:
        self._check = zlib.crc32(data, self._check)
        self._file.write(data)
        self._file.write(memoryview(_CHECK.pack(self._check)))


class Reader:
    """Reads a line. Everything raises SavedLineError where the file is not what ``form`` expects, or ends early."""

    def __init__(self, file: Source, form: Form) -> None:
        self._file, self._left, self._check = file, HEADER.size + _CHECK.size, 0
        header = self._get(HEADER.size, "header")
        magic, version, page, k, v, fingerprint, self.tokens, self._left = HEADER.unpack(header)
        """Tokens that the line will have."""
        for what, found, expected in (
            ("magic", magic, MAGIC),
            ("version", version, VERSION),
            ("tokens of a page", page, form.page),
            ("type of keys", k.rstrip(b"\0"), form.kv_type_k.encode()),
            ("type of values", v.rstrip(b"\0"), form.kv_type_v.encode()),
            ("fingerprint", fingerprint.hex(), form.fingerprint.hex()),
        ):
            if found != expected:
                raise SavedLineError(f"a saved line's {what} is {found!r}, expected {expected!r}; compute it again")
        if self.tokens > _MOST_TOKENS:
            raise SavedLineError(f"a saved line of {self.tokens} tokens, expected at most {_MOST_TOKENS}; compute it again")

    def piece(self, into: NDArray[Any]) -> None:
        """Fill a C-contiguous array, straight from the file."""
        data = into.reshape(-1).view(np.uint8).data
        self._take(len(data), "piece")
        done = 0
        while done < len(data):
            n = self._file.readinto(data[done:])
            if not n:
                raise self._short(len(data) - done, "piece")
            done += n
        self._compare(data, "piece")

    def rows(self, count: int, width: int) -> NDArray[np.float32]:
        """A piece of float32 (count, width), for which memory is taken as it comes."""
        return np.frombuffer(self._get(4 * count * width, "piece"), np.float32).reshape(count, width).copy()

    def word(self, least: int, most: int) -> int:
        """A piece of one number."""
        value = int(_WORD.unpack(self._get(_WORD.size, "number"))[0])
        if not least <= value <= most:
            raise SavedLineError(f"a saved line has {value} where {least} to {most} was expected; compute it again")
        return value

    def end(self) -> None:
        """No piece may be left. What follows in the file is not looked at."""
        if self._left:
            raise SavedLineError(f"a saved line has {self._left} bytes more than its {self.tokens} tokens need; compute it again")

    def _get(self, n: int, what: str) -> bytes:
        data = self._read(n, what)
        self._compare(data, what)
        return data

    def _compare(self, data: bytes | memoryview, what: str) -> None:
        """Read the checksum behind the data that was read last."""
        self._check = zlib.crc32(data, self._check)
        if _CHECK.unpack(self._read(_CHECK.size, what))[0] != self._check:
            raise SavedLineError(f"a saved line's {what} has a wrong checksum: the file is damaged; compute it again")

    def _take(self, n: int, what: str) -> None:
        if n > self._left:
            raise SavedLineError(f"a saved line has {self._left} bytes left for a {what} of {n}; compute it again")
        self._left -= n

    def _read(self, n: int, what: str) -> bytes:
        self._take(n, what)
        parts: list[bytes] = []
        while n:
            part = self._file.read(min(n, _AT_ONCE))
            if not part:
                raise self._short(n, what)
            parts.append(part)
            n -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _short(self, n: int, what: str) -> SavedLineError:
        return SavedLineError(f"a saved line ends {n} bytes before the end of a {what}; compute it again")
