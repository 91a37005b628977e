"""Texts that commands are given: as arguments, in a file, or on standard input."""

from __future__ import annotations

import os
import select
import stat
import sys
from pathlib import Path

from localllm.errors import FileError


def read_text(path: str) -> str:
    """A whole file as text, "-" being standard input. Raises FileError if it can't be read or is not UTF-8."""
    name = "standard input" if path == "-" else repr(path)
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}") from error
    except OSError as error:
        raise FileError(f"{name} can't be read: {error.strerror or error}") from error


def waiting_text() -> str:
    """What is piped in, or redirected from a file, to be read along with a prompt; empty where nothing is.

    A pipe counts only if it has something already: scripts pass on pipes of theirs that nobody ever writes to or closes.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISFIFO(mode) and os.name == "posix":
            given = bool(select.select([sys.stdin], [], [], 0)[0])
        else:
            given = stat.S_ISREG(mode)
    except (OSError, ValueError, AttributeError):  # closed, or replaced by something without a descriptor
        return ""
    return read_text("-") if given else ""


def without_last_newline(text: str) -> str:
    """The text without the line end that editors and ``echo`` add."""
    return text[:-1].removesuffix("\r") if text.endswith("\n") else text
