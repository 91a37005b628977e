"""Weights in memory: raw blocks until they are used, float32 from then on."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localllm import quant
from localllm.backends.base import Float, Progress, TensorSource
from localllm.model.program import Embed, Program

ROWS = 4096
"""Rows that are read or dequantised at once."""


class Weights:
    """The tensors that a Program names. Nothing refers to the file after the constructor."""

    def __init__(self, program: Program, source: TensorSource, progress: Progress | None = None) -> None:
        self._shapes = dict(program.shapes)
        self._types = {name: source.tensors[name].type for name in self._shapes}
        self._kept = {op.weight for op in program.ops if isinstance(op, Embed)}
        self._values: dict[str, Float] = {}
        self._lock = threading.Lock()
        self._blocks: dict[str, NDArray[np.uint8]] = {}
        done, total = 0, sum(source.tensors[name].nbytes for name in self._shapes)
        for name, shape in self._shapes.items():
            self._blocks[name] = _read(source, name, math.prod(shape[:-1]))
            done += self._blocks[name].nbytes
            if progress is not None:
                progress("load", done, total)

    def __getitem__(self, name: str) -> Float:
        """The whole tensor, in its shape; kept."""
        with self._lock:
            if name not in self._values:
                self._values[name] = self._dequantize(name)
                if name not in self._kept:
                    del self._blocks[name]
            return self._values[name]

    def rows(self, name: str, ids: Sequence[int]) -> Float:
        """Some rows of an embedding matrix: (len(ids), D)."""
        blocks = self._blocks[name][np.asarray(ids, np.intp)]
        return quant.dequantize(blocks, self._types[name]).reshape(len(ids), self._shapes[name][-1])

    def _dequantize(self, name: str) -> Float:
        shape, blocks = self._shapes[name], self._blocks[name]
        values = np.empty((len(blocks), shape[-1]), np.float32)
        for start in range(0, len(blocks), ROWS):
            values[start : start + ROWS] = quant.dequantize(blocks[start : start + ROWS], self._types[name])
        return values.reshape(shape)


def _read(source: TensorSource, name: str, rows: int) -> NDArray[np.uint8]:
    blocks = np.empty((rows, source.tensors[name].row_bytes), np.uint8)
    for start in range(0, rows, ROWS):
        source.read_into(name, start, blocks[start : start + ROWS])
    return blocks
