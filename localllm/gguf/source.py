"""A model file on disk: opened once, read at any place by any thread, never mapped (a file that shrinks under a mapping is a SIGBUS)."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from pathlib import Path

from localllm.errors import FileError, TruncatedError

_preadv = getattr(os, "preadv", None)
# macOS refuses a transfer of 2 GiB, Linux cuts it short.
_STEP = 1 << 30


def quote(text: str, limit: int = 120) -> str:
    """``text`` in quotes for a message: on one line, unprintable characters escaped, its middle left out when it is long."""
    if len(text) > limit:
        text = f"{text[: limit // 2]}...{text[-limit // 2 :]}"
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"'{text}'"


class File:
    """A regular file open for reading. It stays open until ``close`` or until nothing refers to it, whichever comes first.

    ``size`` is that of the moment of opening. Raises FileError where there is no such file, or it can't be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.label = quote(str(path), 240)
        self._lock = threading.Lock()
        try:
            self._require_regular(path.stat().st_mode)
            self._file = path.open("rb", buffering=0)
            self.size = os.fstat(self._file.fileno()).st_size
        except FileNotFoundError as error:
            raise FileError(f"{self.label}: there is no such file; check the path") from error
        except OSError as error:
            raise FileError(f"{self.label}: can't be opened ({error.strerror or error}); check the path and its permissions") from error
        except ValueError as error:
            raise FileError(f"{self.label}: not a path that a file can have ({error})") from error
        # Not __del__: a read that is under way in another thread keeps its File alive, and so its descriptor valid.
        self.close = weakref.finalize(self, self._file.close)

    def _require_regular(self, mode: int) -> None:
        if stat.S_ISDIR(mode):
            raise FileError(f"{self.label}: is a folder; name the .gguf file in it")
        if not stat.S_ISREG(mode):
            raise FileError(f"{self.label}: is a device or a pipe; a model must be a regular file")

    def fileno(self) -> int:
        """The descriptor, for reading where Python does not look; its place is not kept."""
        return self._file.fileno()

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill ``out`` (bytes) from ``offset`` on.

        Raises TruncatedError if the file has become shorter than it was, FileError if reading fails.
        """
        done = 0
        while done < len(out):
            try:
                n = self._read_some(offset + done, out[done : done + _STEP])
            except OSError as error:
                raise FileError(f"{self.label}: reading failed at byte {offset + done} ({error.strerror})") from error
            if n == 0:
                raise TruncatedError(
                    f"{self.label}: became shorter while it was read: no byte {offset + done} of {self.size}; load it again"
                )
            done += n

    def _read_some(self, offset: int, out: memoryview) -> int:
        if _preadv is not None:
            return int(_preadv(self._file.fileno(), [out], offset))
        with self._lock:
            self._file.seek(offset)
            return self._file.readinto(out) or 0
