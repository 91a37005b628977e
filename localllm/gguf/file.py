"""An open model file: metadata, tensor table, and the tensors' bytes on demand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localllm.errors import FileError, GGUFError, OptionError
from localllm.gguf.reader import Part, read_part
from localllm.gguf.source import File, quote
from localllm.gguf.split import check_part, check_total, part_paths
from localllm.gguf.tensors import Tensor


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Open a GGUF file, or the first part of a split one with all its parts; a context manager.

    Reads and checks everything but the tensors' data, which stays in the file. Raises FileError where a file is missing or unreadable,
    GGUFError where it is something else or breaks the format, TruncatedError where its end is missing, UnsupportedError for a version
    or tensor type that is not known.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError(f"the GGUF file is {path!r:.80}; expected a path")
    files = [File(Path(path))]
    try:
        parts = [read_part(files[0], 0)]
        paths = part_paths(files[0], parts[0].metadata)
        for i, other in enumerate(paths[1:], 1):
            files.append(File(other))
            parts.append(read_part(files[i], i))
            check_part(files[i], parts[i].metadata, i, len(paths))
        return GGUFFile(files, parts)
    except BaseException:
        for file in files:
            file.close()
        raise


class GGUFFile:
    """An open model file, made by ``open_gguf``. It is also where backends read weights from (TensorSource).

    ``paths``: the files of all parts, ``path`` the first; ``version`` 2 or 3; ``metadata`` as the first part has it (see
    ``metadata.read_metadata`` for the values); ``tensors`` of all parts, in the order of the files. Reading is thread-safe.
    """

    def __init__(self, files: list[File], parts: list[Part]) -> None:
        self.paths = tuple(file.path for file in files)
        self.path = self.paths[0]
        self.version = parts[0].version
        self.metadata: Mapping[str, Any] = MappingProxyType(parts[0].metadata)
        self.tensors: Mapping[str, Tensor] = MappingProxyType(_join(files, parts))
        self._label = files[0].label
        self._files: tuple[File, ...] | None = tuple(files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GGUFFile {self._label}: {len(self.metadata)} keys, {len(self.tensors)} tensors>"

    def close(self) -> None:
        """Close the files; reads that are under way in other threads end first. Metadata and the tensor table stay."""
        self._files = None

    def read_into(self, name: str, first_row: int, out: NDArray[np.uint8]) -> None:
        """Fill ``out`` (rows, row_bytes), C-contiguous, with rows of a tensor from ``first_row`` on. All leading axes count as rows.

        Raises FileError if the file is closed, unreadable or has become shorter (TruncatedError).
        """
        tensor = self._tensor(name)
        if out.dtype != np.uint8 or out.ndim != 2 or out.shape[1] != tensor.row_bytes or not out.flags.carray:
            expected = f"writable C-contiguous uint8 (rows, {tensor.row_bytes})"
            raise OptionError(f"out is {out.dtype} of shape {out.shape} for tensor {quote(name)}, expected {expected}")
        if not 0 <= first_row <= first_row + len(out) <= tensor.rows:
            raise OptionError(f"rows {first_row} to {first_row + len(out)} of tensor {quote(name)}, which has {tensor.rows}")
        file, offset = self.place(name)
        if out.size:
            file.read_into(offset + first_row * tensor.row_bytes, out.data.cast("B"))

    def place(self, name: str) -> tuple[File, int]:
        """The file that a tensor lies in, and the offset of its first byte there; whoever has it may read on when this one is closed.

        Raises FileError if it is closed already.
        """
        tensor, files = self._tensor(name), self._files
        if files is None:
            raise FileError(f"{self._label}: is closed; open it again to read tensor {quote(name)}")
        return files[tensor.shard], tensor.offset

    def read(self, name: str) -> NDArray[np.uint8]:
        """All bytes of a tensor: (rows, row_bytes)."""
        tensor = self._tensor(name)
        out = np.empty((tensor.rows, tensor.row_bytes), np.uint8)
        self.read_into(name, 0, out)
        return out

    def _tensor(self, name: str) -> Tensor:
        try:
            return self.tensors[name]
        except KeyError:
            raise GGUFError(f"{self._label}: has no tensor {quote(name)}") from None


def _join(files: list[File], parts: list[Part]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for file, part in zip(files, parts, strict=True):
        for tensor in part.tensors:
            if tensor.name in tensors:
                raise GGUFError(
                    f"{file.label}: has tensor {quote(tensor.name)}, which an earlier part has too; the parts are of different models"
                )
            tensors[tensor.name] = tensor
    check_total(files[0], parts[0].metadata, len(tensors))
    return tensors
