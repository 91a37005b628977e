"""The tokens that a sampler still considers, and how the likeliest are found without sorting a vocabulary.

Between two tokens all caches are full of weights, and a call that is new to them takes microseconds however little it does: so methods
and ufuncs stand here where NumPy's functions would call them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
_ROWS = 64


class Candidates(NamedTuple):
    """``logits`` (n,) of the tokens ``ids`` (n,), or of the whole vocabulary in order where ``ids`` is None.

    ``ranked``: likeliest first, the lowest id first on ties. Filters leave the arrays of others as they are.
    """

    logits: Float
    ids: NDArray[np.int64] | None = None
    ranked: bool = False

    def take(self, index: NDArray[np.int64], *, ranked: bool = False) -> Candidates:
        """Those at ``index``, in its order."""
        return Candidates(self.logits[index], index if self.ids is None else self.ids[index], ranked)

    def first(self, n: int) -> Candidates:
        """The first n."""
        return Candidates(self.logits[:n], np.arange(n) if self.ids is None else self.ids[:n], self.ranked)

    def best(self, n: int) -> Candidates:
        """The n likeliest, ranked."""
        if self.ranked:
            return self.first(n)
        # Ids rise here: a filter either ranks or keeps the order, so a stable sort leaves the lowest id first.
        near = (self.logits >= _floor(self.logits, n)).nonzero()[0] if n < len(self.logits) else np.arange(len(self.logits))
        values = self.logits[near]
        order = (-values).argsort(kind="stable")[:n]
        near = near[order]
        return Candidates(values[order], near if self.ids is None else self.ids[near], ranked=True)

    def top(self) -> np.float32:
        """The largest logit."""
        largest: np.float32 = self.logits[0] if self.ranked else np.maximum.reduce(self.logits)
        return largest

    def names(self) -> NDArray[np.int64]:
        """The ids, also where they are all."""
        return np.arange(len(self.logits)) if self.ids is None else self.ids


def _floor(logits: Float, n: int) -> np.float32:
    """A value that at least n logits reach, and few more. The n-th largest maximum of strided groups is one, found in one
    vectorised pass; a partition of the whole vocabulary costs ten times as much."""
    columns = len(logits) // _ROWS
    if columns < 4 * n:
        found = logits.copy()
    else:
        found = np.maximum.reduce(logits[: _ROWS * columns].reshape(_ROWS, columns))
    place = len(found) - n
    found.partition(place)
    floor: np.float32 = found[place]
    return floor
