"""Weights in memory: what is packed how, and where; the model is in memory once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import Options, Progress, TensorInfo, TensorSource
from localllm.backends.cpu.arena import Arena, vector
from localllm.backends.cpu.kernel_cache import KernelId, kernels
from localllm.backends.cpu.layout import FLOATS, GROUP, LAYOUTS, padded
from localllm.backends.cpu.loading import Loading, Piece
from localllm.backends.cpu.threads import default_threads
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
    """``matrices`` and ``vectors`` (float32, padded with zeros to a multiple of 64) by tensor name.

    ``matrices`` may be read when ``loading`` is done.
    """

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, NDArray[np.float32]]
    arena: Arena
    loading: Loading


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
    """All that the Program names, on its way into the arena: ``Weights.loading`` is to be waited for before a kernel reads a matrix."""
    names = [name for name, shape in program.shapes.items() if len(shape) > 1]
    arena = Arena(total_bytes(program, source))
    packers = kernels().addresses({pack_kernel(source.tensors[name].type) for name in names}, progress)
    matrices = {name: _place(source.tensors[name], arena) for name in names}
    pieces = [piece for name in names for piece in _pieces(source, name, matrices[name], packers)]
    loading = Loading(pieces, options.threads or default_threads(), arena)
    try:
        vectors = {name: read_vector(source, name) for name, shape in program.shapes.items() if len(shape) == 1}
    except BaseException:
        loading.stop()
        raise
    return Weights(matrices, vectors, arena, loading)


def _place(tensor: TensorInfo, arena: Arena) -> Matrix:
    *_, rows, columns = tensor.shape
    nbytes = packed_bytes(tensor)
    return Matrix(arena.take(nbytes).ctypes.data, tensor.type, rows, columns, nbytes)


def read_vector(source: TensorSource, name: str) -> NDArray[np.float32]:
    """A vector of the file, padded with zeros."""
    from localllm.quant import dequantize

    tensor = source.tensors[name]
    raw = np.empty((1, tensor.row_bytes), np.uint8)
    source.read_into(name, 0, raw)
    return vector(dequantize(raw, tensor.type)[0])


def _pieces(source: TensorSource, name: str, matrix: Matrix, packers: Mapping[KernelId, int]) -> Iterator[Piece]:
    """Whole groups of rows, of one expert each."""
    tensor = source.tensors[name]
    file, place = source.place(name)
    each = max(1, _PIECE // (tensor.row_bytes * GROUP)) * GROUP
    one = _matrix_bytes(matrix.layout, matrix.rows, matrix.columns)
    group = one // matrix.groups
    row = {"row_bytes": tensor.row_bytes, "records": matrix.records}
    for expert in range(prod(tensor.shape[:-2])):
        for first in range(0, matrix.rows, each):
            rows = min(each, matrix.rows - first)
            offset = place + (expert * matrix.rows + first) * tensor.row_bytes
            to = {"rows": rows, "dst": matrix.address + expert * one + first // GROUP * group}
            yield Piece(file, offset, rows * tensor.row_bytes, packers[pack_kernel(tensor.type)], {**row, **to})
