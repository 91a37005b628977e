"""Computed lines on disk: a folder for each model and way of computing, a file for each line.

A file has its own name before it is whole: it is written under another one, synced, and renamed. So a reader finds all of it or nothing,
whatever dies when, and processes need no lock between them. What is not a file of ours is removed when it is seen.

offset  bytes  field
0       8      magic
8       32     key of the folder: all that decides the bits of a line, but for its tokens
40      8      tokens n
48      8      float64, seconds that each of them took to compute
56      4 n    tokens, int32
...     16     BLAKE2b of all before
...     ...    the line, as ``Line.save`` writes it

Everything is little-endian.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from localllm.store.lock import try_lock

MAGIC = b"\x93LLMTEXT"
_HEADER, _CHECK = struct.Struct("<8s32sQd"), 16
_ENDING, _DRAFT = ".kv", ".draft"
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_FOLDER_NAME = 32
"""Letters of a folder's name, the first of its key in hexadecimal."""

Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SavedLine:
    """A file. ``seconds``: what each of its tokens took to compute; ``size``: bytes."""

    path: Path
    tokens: Tokens
    seconds: float
    size: int


class LineFolder:
    """The lines of one model, computed in one way. ``root``: where the folders are; ``key``: 32 bytes; ``budget``: bytes, for all folders
    together."""

    def __init__(self, root: Path, key: bytes, budget: int) -> None:
        self._root, self._key, self._budget = root, key, budget
        self._folder = root / key.hex()[:_FOLDER_NAME]
        self._known: dict[str, SavedLine] = {}

    def lines(self) -> list[SavedLine]:
        """What is there now. Files that are none of this folder's are removed."""
        names = {entry.name for entry in _entries(self._folder) if not entry.name.endswith(_DRAFT)}
        # Another thread may do the same: no dictionary is changed that it could be looking at.
        known = self._known
        found = {name: known.get(name) or self._read(self._folder / name) for name in names}
        self._known = {name: line for name, line in found.items() if line is not None}
        return list(self._known.values())

    @contextlib.contextmanager
    def open(self, line: SavedLine) -> Iterator[FileIO]:
        """The file, at where the line begins; it counts as used now. Raises OSError where it has gone."""
        with os.fdopen(os.open(line.path, os.O_RDONLY | _FLAGS), "rb", buffering=0) as file:
            with contextlib.suppress(OSError):
                os.utime(line.path)
            file.seek(_HEADER.size + 4 * len(line.tokens) + _CHECK)
            yield file

    def remove(self, line: SavedLine) -> None:
        """Forget a line: its file is damaged, or another one holds all of it."""
        self._known = {name: other for name, other in self._known.items() if other is not line}
        _unlink(line.path)

    def write(self, tokens: Tokens, seconds: float, size: int, save: Callable[[BinaryIO], None]) -> bool:
        """Keep a line that ``save`` writes, about ``size`` bytes; whether it was kept. Lines used longest ago make room.

        Raises OSError where the disk does not want it.
        """
        if size > self._budget:
            return False
        make_room(self._root, self._budget - size)
        name = hashlib.blake2b(tokens.tobytes(), digest_size=16).hexdigest()
        path, head = self._folder / f"{name}{_ENDING}", self._head(tokens, seconds)
        try:
            self._write(path, head, save)
        except FileNotFoundError:  # the folder was empty, and another process has tidied up
            self._write(path, head, save)
        make_room(self._root, self._budget)
        return True

    def _write(self, path: Path, head: bytes, save: Callable[[BinaryIO], None]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f"{path.stem}.{os.getpid()}.{os.urandom(4).hex()}{_DRAFT}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600), "wb", buffering=1 << 16) as file:
                try_lock(file.fileno())  # says that somebody is at it; the system gives it back however that ends
                file.write(head)
                save(file)
                file.flush()
                os.fsync(file.fileno())
                if os.name != "nt":  # there a file that is open has no other name
                    os.replace(draft, path)
            if os.name == "nt":
                os.replace(draft, path)
        finally:
            _unlink(draft)
        _sync(path.parent)

    def _head(self, tokens: Tokens, seconds: float) -> bytes:
        head = _HEADER.pack(MAGIC, self._key, len(tokens), seconds) + tokens.astype("<i4").tobytes()
        return head + hashlib.blake2b(head, digest_size=_CHECK).digest()

    def _read(self, path: Path) -> SavedLine | None:
        """What a file says of itself; None for what can't be read, and for what is not ours, which is removed."""
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | _FLAGS | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
                status = os.fstat(file.fileno())
                found = self._parse(file, status.st_size) if stat.S_ISREG(status.st_mode) and path.suffix == _ENDING else None
        except OSError as error:
            if error.errno != errno.ELOOP:  # a link: we make none
                return None
            found = None
        if found is None:
            _unlink(path)
            return None
        return SavedLine(path, *found, status.st_size)

    def _parse(self, file: BinaryIO, size: int) -> tuple[Tokens, float] | None:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return None
        magic, key, n, seconds = _HEADER.unpack(head)
        if magic != MAGIC or key != self._key or n > size // 4:
            return None
        head += file.read(4 * n)
        if hashlib.blake2b(head, digest_size=_CHECK).digest() != file.read(_CHECK):
            return None
        return np.frombuffer(head, "<i4", offset=_HEADER.size).astype(np.int32), seconds


def make_room(root: Path, budget: int) -> None:
    """Remove what writers that died have left, and lines used longest ago, until all folders together have at most ``budget`` bytes."""
    found = []
    for folder in _entries(root):
        if folder.is_dir(follow_symlinks=False) and len(folder.name) == _FOLDER_NAME:
            found += [(*_stamp(entry), Path(entry.path)) for entry in _entries(Path(folder.path)) if not _is_dead_draft(entry)]
            with contextlib.suppress(OSError):
                os.rmdir(folder.path)  # only where it is empty
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= budget:
            return
        if path.suffix != _DRAFT:
            _unlink(path)
            total -= size


def _is_dead_draft(entry: os.DirEntry[str]) -> bool:
    """Whether a file was being written by somebody who is no more; it is removed then."""
    if not entry.name.endswith(_DRAFT):
        return False
    try:
        descriptor = os.open(entry.path, os.O_RDWR | _FLAGS)
    except OSError:
        return False
    try:
        dead = try_lock(descriptor)
    finally:
        os.close(descriptor)
    if dead:
        _unlink(Path(entry.path))
    return dead


def _stamp(entry: os.DirEntry[str]) -> tuple[int, int]:
    """When it was last used, in nanoseconds, and its bytes."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _sync(folder: Path) -> None:
    """Have the new name on the disk too, where folders can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
