"""The codebooks of the IQ formats: the grids of the ``gguf`` package, and the signs that go with them.

An entry is 4 or 8 values; both tables are kept as one wide integer an entry, which is much faster to gather.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm.quant.blocks import Codes


def gather(name: str, index: NDArray[Any]) -> Codes:
    """index (n, m) into the grid of format ``name`` -> its entries, (n, m * 4) or (n, m * 8)."""
    entries: Codes = _grid(name)[index].view(np.int8)
    return entries.reshape(len(index), -1)


def signs(masks: NDArray[Any]) -> Codes:
    """masks (n, m) uint8 -> (n, m * 8): -1 where the bit is set, from bit 0 on, else 1."""
    factors: Codes = _signs()[masks].view(np.int8)
    return factors.reshape(len(masks), -1)


def parity(low: NDArray[Any]) -> NDArray[np.uint8]:
    """Seven bits of a sign mask -> all eight: the number of signs is always even."""
    masks: NDArray[np.uint8] = _parity()[low]
    return masks


@cache
def _grid(name: str) -> NDArray[Any]:
    import gguf.quants

    source = getattr(gguf.quants, name)
    source.init_grid()
    entries = source.grid.reshape(source.grid_shape).astype(np.int8)
    return np.ascontiguousarray(entries).view(f"u{entries.shape[1]}")[:, 0]


@cache
def _signs() -> NDArray[np.uint64]:
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.where(bits, np.int8(-1), np.int8(1)).view(np.uint64)[:, 0]


@cache
def _parity() -> NDArray[np.uint8]:
    low = np.arange(128, dtype=np.uint8)
    ones = np.unpackbits(low[:, None], axis=1).sum(axis=1)
    low[ones % 2 == 1] |= 128
    return low
