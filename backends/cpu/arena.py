"""Memory for weights and registers: anonymous pages, huge ones where the system gives them, which only count once they are touched."""

from __future__ import annotations

import contextlib
import mmap
import sys

import numpy as np
from numpy.typing import NDArray

_HUGE = 2 << 20


class Arena:
    """``nbytes`` of zeros. Pieces are handed out in order and live as long as the arena."""

    def __init__(self, nbytes: int) -> None:
        size = -(-(nbytes + _HUGE) // _HUGE) * _HUGE
        if sys.platform == "win32":
            self._map = mmap.mmap(-1, size)
        else:
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared ones, the default, get no huge pages
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._at = -self._bytes.ctypes.data % _HUGE
        self._end = size

    def take(self, nbytes: int, align: int = 4096) -> NDArray[np.uint8]:
        """The next ``nbytes``, aligned."""
        start = self._at + -(self._bytes.ctypes.data + self._at) % align
        assert start + nbytes <= self._end, (start, nbytes, self._end)
        self._at = start + nbytes
        return self._bytes[start : self._at]


def words(n: int) -> NDArray[np.int64]:
    """n 64-bit words of zeros at the start of a cache line."""
    raw = np.zeros(8 * n + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 8 * n].view(np.int64)


def vector(values: NDArray[np.float32], multiple: int = 64) -> NDArray[np.float32]:
    """A copy of a vector, padded with zeros to a multiple of so many floats, at the start of a cache line."""
    padded = words(-(-len(values) // multiple) * multiple // 2).view(np.float32)
    padded[: len(values)] = values
    return padded
