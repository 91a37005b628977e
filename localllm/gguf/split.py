"""Models that are split over several files, NAME-00001-of-0000N.gguf and so on, as llama.cpp's gguf-split makes them.

The parts are found by the name of the first one alone, so nothing in a file can name a file elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localllm.errors import FileError, GGUFError
from localllm.gguf.source import File, quote

_NAME = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})(\.gguf)", re.DOTALL | re.IGNORECASE)


def part_paths(file: File, metadata: Mapping[str, Any]) -> list[Path]:
    """The paths of all parts of the model whose first part is ``file``; one path for a model that is not split.

    Raises GGUFError where ``file`` is not the first part or its name and metadata disagree, FileError where a part is missing.
    """
    number, count = split_place(file, metadata)
    name = _NAME.fullmatch(file.path.name)
    if number:
        first = f": {quote(_name(name, 1))}" if name else ""
        raise GGUFError(f"{file.label}: is part {number + 1} of {count} of a split model; open the first part{first}")
    if count == 1:
        return [file.path]
    expected = f"NAME-00001-of-{count:05}.gguf"
    if name is None or (int(name[2]), int(name[3])) != (1, count):
        raise GGUFError(f"{file.label}: is part 1 of {count} of a split model, so its name must be {expected}; rename it as it was")
    paths = [file.path, *(file.path.with_name(_name(name, i)) for i in range(2, count + 1))]
    for i, path in enumerate(paths):
        if not path.exists():
            raise FileError(f"{file.label}: part {i + 1} of {count} is missing; put {quote(path.name)} into the same folder")
    return paths


def split_place(file: File, metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Which part a file is, from 0, and how many there are: (0, 1) for a file that is not split."""
    count = _number(file, metadata, "split.count", 1)
    # A count of 0 is written by tools that do not split.
    count = max(count, 1)
    number = _number(file, metadata, "split.no", 0)
    if number >= count:
        raise GGUFError(f"{file.label}: metadata 'split.no' is {number}, expected less than 'split.count', {count}; the file is damaged")
    return number, count


def check_part(file: File, metadata: Mapping[str, Any], number: int, count: int) -> None:
    """Raise GGUFError unless ``file`` says that it is part ``number`` (from 0) of ``count``."""
    found = split_place(file, metadata)
    if found != (number, count):
        raise GGUFError(
            f"{file.label}: says that it is part {found[0] + 1} of {found[1]}, expected part {number + 1} of {count}; fetch the file again"
        )


def check_total(file: File, metadata: Mapping[str, Any], total: int) -> None:
    """Raise GGUFError unless all parts together have as many tensors as the first one announces."""
    announced = _number(file, metadata, "split.tensors.count", total)
    if announced != total:
        raise GGUFError(f"{file.label}: all parts together have {total} tensors, expected {announced}; the parts are of different models")


def _number(file: File, metadata: Mapping[str, Any], key: str, default: int) -> int:
    value = metadata.get(key, default)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise GGUFError(f"{file.label}: metadata {quote(key)} is {quote(str(value))}, expected a count; the file is damaged")
    return value


def _name(first: re.Match[str], number: int) -> str:
    return f"{first[1]}-{number:05}-of-{first[3]}{first[4]}"
