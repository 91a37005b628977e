"""The tensors of a file, taken one by one by the emitter: each is checked against the shape that the metadata implies.

What nobody took at the end is reported, since a weight that is left out silently gives wrong text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from localllm.errors import GGUFError, UnsupportedError

IGNORED = re.compile(
    r"(v|mm|a)\..*"  # an image or sound encoder in the same file
    r"|cls\..*"  # a classifier beside the language head
    r"|blk\.\d+\.attn_rot_embd(\.weight)?"  # the frequencies that rope.freq_base gives anyway
    r"|blk\.\d+\.nextn\..*"  # multi-token prediction: a draft head beside the model
)
"""Tensors that text does not depend on."""


class Tensor(Protocol):
    """A tensor as far as its shape matters here, in NumPy's order."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class ModelFile(Protocol):
    """An open GGUF file. ``path`` is only for messages."""

    @property
    def path(self) -> Path: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, Tensor]: ...


def label(file: ModelFile) -> str:
    """The file as messages name it: its path in quotes, unprintable characters escaped."""
    return repr(str(file.path))


def brief(value: object) -> str:
    """A value of the file as messages show it: on one line, cut when it is long."""
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 60 else shown[:57] + "..."


class Weights:
    """Names of tensors, handed out after a check. ``shapes`` holds what was taken so far."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self.shapes: dict[str, tuple[int, ...]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._file.tensors

    def need(self, name: str, *shape: int) -> str:
        """The name, of a tensor that must be there in this shape. Raises GGUFError."""
        found = self._shape(name)
        if found != shape:
            raise GGUFError(f"{label(self._file)}: tensor {name!r} has shape {found}, expected {shape} from the metadata")
        self.shapes[name] = found
        return name

    def maybe(self, name: str, *shape: int) -> str | None:
        """None if there is no such tensor, else as ``need``."""
        return self.need(name, *shape) if name in self else None

    def rows(self, name: str, width: int) -> int:
        """Rows of a matrix (rows, width) whose height only the file knows, such as the vocabulary's. Raises GGUFError."""
        found = self._shape(name)
        if len(found) != 2 or found[1] != width or found[0] < 1:
            raise GGUFError(f"{label(self._file)}: tensor {name!r} has shape {found}, expected (rows, {width}) from the metadata")
        return found[0]

    def finish(self, architecture: str, layers: int, spare: int = 0) -> None:
        """Raise UnsupportedError if the file has weights that nobody took. ``spare`` blocks behind the ``layers`` may be left."""
        left = [name for name in self._file.tensors if name not in self.shapes and not IGNORED.fullmatch(name)]
        left = [name for name in left if not layers <= _block(name) < layers + spare]
        if left:
            shown = ", ".join(map(brief, left[:3])) + (" ..." if len(left) > 3 else "")
            raise UnsupportedError(
                f"{label(self._file)}: {len(left)} of its tensors have no place in a model of architecture {architecture!r} "
                f"with {layers} layers: {shown}; without them its text would be wrong"
            )

    def _shape(self, name: str) -> tuple[int, ...]:
        tensor = self._file.tensors.get(name)
        if tensor is None:
            raise GGUFError(f"{label(self._file)}: tensor {name!r} is missing{self._near(name)}")
        return tuple(tensor.shape)

    def _near(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, self._file.tensors, n=3, cutoff=0.8)
        return f"; names like it are {', '.join(map(brief, near))}" if near else ""


def _block(name: str) -> int:
    found = re.match(r"blk\.(\d{1,9})\.", name)
    return int(found[1]) if found else -1
