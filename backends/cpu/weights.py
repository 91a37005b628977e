"""Weights in memory: read from the file in pieces by all threads and packed straight into the arena; the model is in memory once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import Options, Progress, TensorInfo, TensorSource
from localllm.backends.cpu.arena import Arena, vector, words
from localllm.backends.cpu.arguments_matmul import REPACK
from localllm.backends.cpu.kernel_cache import KernelId, kernels
from localllm.backends.cpu.layout import FLOATS, GROUP, LAYOUTS, padded
from localllm.backends.cpu.threads import KERNEL, default_threads
from localllm.model.program import Program

_PIECE = 4 << 20
"""Bytes of the file that a thread reads at a time."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed matrix, or several of one shape (experts) behind one another. ``layout``: a name of layout.LAYOUTS or layout.FLOATS."""

    address: int
    layout: str
    rows: int
    columns: int
    bytes: int

    @property
    def groups(self) -> int:
        """Groups of 64 rows."""
        return -(-self.rows // GROUP)

    @property
    def records(self) -> int:
        """What a row consists of: records of its layout, or floats."""
        return self.columns if self.layout in FLOATS else self.columns // LAYOUTS[self.layout].qk


@dataclass(slots=True)
class Weights:
    """``matrices`` and ``vectors`` (float32, padded with zeros to a multiple of 64) by tensor name."""

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, NDArray[np.float32]]
    arena: Arena


def packed_bytes(tensor: TensorInfo) -> int:
    """Memory that a tensor takes, packed."""
    *experts, rows, columns = tensor.shape
    return prod(experts) * _matrix_bytes(tensor.type, rows, columns)


def _matrix_bytes(layout: str, rows: int, columns: int) -> int:
    if layout in FLOATS:
        return padded(rows) * columns * FLOATS[layout]
    return LAYOUTS[layout].packed_bytes(rows, columns)


def total_bytes(program: Program, source: TensorSource) -> int:
    """Memory that all matrices of a Program take."""
    return sum(padded(packed_bytes(source.tensors[name]), 4096) for name, shape in program.shapes.items() if len(shape) > 1)


def pack_kernel(kind: str) -> KernelId:
    """The kernel that packs a storage format."""
    return ("repack", "floats" if kind in FLOATS else "pack", kind)


def upload(program: Program, source: TensorSource, options: Options, progress: Progress | None) -> Weights:
    """All that the Program names, packed."""
    names = [name for name, shape in program.shapes.items() if len(shape) > 1]
    arena = Arena(total_bytes(program, source))
    found = kernels().addresses({pack_kernel(source.tensors[name].type) for name in names}, progress)
    matrices = {name: _place(source.tensors[name], arena) for name in names}
    loader = _Loader(source, {i: KERNEL(address) for i, address in found.items()}, progress, sum(source.tensors[n].nbytes for n in names))
    pieces = [piece for name in names for piece in _pieces(source.tensors[name], matrices[name])]
    with ThreadPoolExecutor(options.threads or default_threads()) as pool:
        for _ in pool.map(loader.load, pieces):
            pass
    return Weights(matrices, {name: _vector(source, name) for name, shape in program.shapes.items() if len(shape) == 1}, arena)


def _place(tensor: TensorInfo, arena: Arena) -> Matrix:
    *_, rows, columns = tensor.shape
    nbytes = packed_bytes(tensor)
    return Matrix(arena.take(nbytes).ctypes.data, tensor.type, rows, columns, nbytes)


def _vector(source: TensorSource, name: str) -> NDArray[np.float32]:
    from localllm.quant import dequantize

    tensor = source.tensors[name]
    raw = np.empty((1, tensor.row_bytes), np.uint8)
    source.read_into(name, 0, raw)
    return vector(dequantize(raw, tensor.type)[0])


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of a tensor that a thread reads and packs at once: whole groups, of one expert."""

    tensor: TensorInfo
    first: int
    rows: int
    records: int
    address: int


def _pieces(tensor: TensorInfo, matrix: Matrix) -> Iterator[_Piece]:
    each = max(1, _PIECE // (tensor.row_bytes * GROUP)) * GROUP
    one = _matrix_bytes(matrix.layout, matrix.rows, matrix.columns)
    group = one // matrix.groups
    for expert in range(prod(tensor.shape[:-2])):
        for first in range(0, matrix.rows, each):
            rows = min(each, matrix.rows - first)
            yield _Piece(tensor, expert * matrix.rows + first, rows, matrix.records, matrix.address + expert * one + first // GROUP * group)


class _Loader:
    def __init__(
        self, source: TensorSource, packers: Mapping[KernelId, Callable[..., None]], progress: Progress | None, total: int
    ) -> None:
        self._source, self._packers, self._progress = source, packers, progress
        self._total, self._done, self._lock = total, 0, threading.Lock()
        self._local = threading.local()

    def load(self, piece: _Piece) -> None:
        raw = self._buffer(piece.rows * piece.tensor.row_bytes).reshape(piece.rows, piece.tensor.row_bytes)
        self._source.read_into(piece.tensor.name, piece.first, raw)
        kernel = pack_kernel(piece.tensor.type)
        arguments = words(len(REPACK.names))
        arguments[:] = REPACK.fill(
            src=raw.ctypes.data, row_bytes=raw.shape[1], rows=piece.rows, records=piece.records, dst=piece.address
        )  # fmt: skip
        self._packers[kernel](arguments.ctypes.data, 0, 0, 0)
        with self._lock:
            self._done += raw.size
            if self._progress:
                self._progress("load", self._done, self._total)

    def _buffer(self, nbytes: int) -> NDArray[np.uint8]:
        buffer: NDArray[np.uint8] | None = getattr(self._local, "buffer", None)
        if buffer is None or buffer.size < nbytes:
            buffer = self._local.buffer = np.empty(nbytes, np.uint8)
        return buffer[:nbytes]
