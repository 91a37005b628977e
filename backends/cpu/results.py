"""What a batch gives: logits copied out, or the likeliest tokens of a row as Python's numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localllm.backends.base import MOST, Chunk, Float, Likeliest, Outputs
from localllm.backends.cpu.arena import words
from localllm.backends.cpu.buffers import WANTED_ROWS

_NONE = np.zeros((0, 0), np.float32)


class Lists:
    """The memory that the kernel writes the likeliest tokens of every wanted row to."""

    def __init__(self) -> None:
        self._memory = words(WANTED_ROWS * MOST // 2), words(WANTED_ROWS * MOST)
        self.logits, self.ids = (memory.ctypes.data for memory in self._memory)
        """Addresses, each of WANTED_ROWS times MOST numbers."""
        # Not NumPy's arrays: between two tokens a view of Python's own is read in half the time.
        self._views = self._memory[0].data.cast("B").cast("f"), self._memory[1].data

    def row(self, i: int, k: int) -> Likeliest:
        """The k tokens of the i-th row."""
        part = slice(i * MOST, i * MOST + k)
        logits, ids = self._views
        return Likeliest(logits[part].tolist(), ids[part].tolist())


class Results:
    """The outputs of a batch, filled as its wanted rows are computed."""

    def __init__(self, batch: Sequence[Chunk], vocab: int) -> None:
        self._batch, self._vocab = batch, vocab
        self.outputs = Outputs(
            [_NONE if chunk.want.likeliest else np.empty((len(chunk.want.rows), vocab), np.float32) for chunk in batch],
            [[] for _ in batch],
        )
        self._rows = [(i, row) for i, chunk in enumerate(batch) for row in range(len(chunk.want.rows))]
        self.asked = min(vocab, max([chunk.want.likeliest for chunk in batch], default=0))
        """How many tokens of a row are asked for at most."""

    def put(self, first: int, logits: Float, lists: Lists) -> None:
        """The results of some wanted rows, from the first-th on."""
        for i in range(len(logits)):
            chunk, row = self._rows[first + i]
            k = min(self._batch[chunk].want.likeliest, self._vocab)
            if k:
                self.outputs.likeliest[chunk].append(lists.row(i, k))
            else:
                self.outputs.logits[chunk][row] = logits[i]
