"""Names to files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from localllm.errors import FileError, ModelNotFoundError, OptionError
from localllm.store.entries import Entry, catalogue, find, unknown
from localllm.store.folders import models_folder
from localllm.store.verify import verified

if TYPE_CHECKING:
    from localllm.store.fetch import Progress


def lookup(name: str | os.PathLike[str]) -> Path | Entry:
    """What a name means: a path that exists is itself, other names are looked up in the catalogue. Nothing is fetched.

    Raises ModelNotFoundError for what is neither, FileError for a folder.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise OptionError(f"the model is {name!r:.80}; expected a path or a name")
    # os.path, since pathlib raises OSError for a text too long to be a name.
    if os.path.isdir(name):
        raise FileError(f"{os.fspath(name)!r} is a folder; a GGUF file is expected{_inside(Path(name))}")
    if os.path.exists(name):
        return Path(name)
    entry = find(name) if isinstance(name, str) else None
    if entry is None:
        raise _not_found(os.fspath(name))
    return entry


def resolve(name: str | os.PathLike[str], progress: Progress | None = None) -> Path:
    """The file of a model: a path that exists, or the file of a catalogue name, fetched into the cache unless it is there.

    Raises what ``lookup`` raises, and DownloadError where fetching fails.
    """
    found = lookup(name)
    if isinstance(found, Path):
        return found
    folder = models_folder()
    if _there(found, folder):
        return folder / found.file
    from localllm.store.fetch import fetch

    return fetch(found, folder, progress)


def cached() -> dict[str, Path]:
    """The catalogue's models that are in the cache whole: name to file."""
    folder = models_folder()
    return {entry.name: folder / entry.file for entry in catalogue() if _there(entry, folder)}


def _there(entry: Entry, folder: Path) -> bool:
    return verified(folder / entry.file, entry.sha256, entry.size)


def _inside(folder: Path) -> str:
    """A hint at a GGUF file in a folder."""
    names = sorted(path.name for path in folder.glob("*.gguf"))
    return f", such as {str(folder / names[0])!r}" if names else ""


def _not_found(name: str) -> ModelNotFoundError:
    """The error for a name that is neither a file nor known: for what looks like a path, with a file of a similar name."""
    import difflib

    path = Path(name)
    if path.suffix.lower() != ".gguf" and path.name == name:
        return unknown(name)
    if not os.path.isdir(path.parent):
        return ModelNotFoundError(f"there is no file {name!r}: no folder {str(path.parent)!r}")
    near = difflib.get_close_matches(path.name, [file.name for file in path.parent.glob("*.gguf")], n=1)
    hint = f"the nearest is {str(path.parent / near[0])!r}" if near else "check the path; 'localllm list' shows the names that need none"
    return ModelNotFoundError(f"there is no file {name!r}; {hint}")
