"""Is a file what its digest says? Read once, then remembered beside it."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

_BLOCK = 4 << 20


def verified(path: Path, sha256: str, size: int) -> bool:
    """Whether a file is there with that content.

    The answer of a full read is kept in ``<path>.json`` with the file's size and time, and holds until these change.
    """
    try:
        if path.stat().st_size != size:
            return False
    except OSError:
        return False
    if _record(path).get("sha256") == sha256:
        return True
    if digest(path) != sha256:
        return False
    remember(path, sha256)
    return True


def remember(path: Path, sha256: str) -> None:
    """Note that the file has this digest, where the folder can be written."""
    record = path.with_name(path.name + ".json")
    draft = record.with_name(f"{record.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps({"sha256": sha256, **_stamp(path)}), encoding="utf-8")
        draft.replace(record)


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    import hashlib

    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def _stamp(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _record(path: Path) -> dict[str, object]:
    """What was noted about the file as it is now; empty if nothing was or the file has changed."""
    try:
        record = json.loads(path.with_name(path.name + ".json").read_text(encoding="utf-8"))
        now = _stamp(path)
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict) or any(record.get(key) != value for key, value in now.items()):
        return {}
    return record
