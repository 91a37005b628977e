"""What passes over a few tokens cost, learnt from the passes that are made anyway.

Speed changes from minute to minute with what else the machine does and with the length of the context, and it changes for all sizes alike;
what m tokens cost in terms of one hardly changes. So there is one level that moves fast, and a ratio for each size that moves slowly.
"""

from __future__ import annotations

import math

LIMIT = 16
"""Tokens up to which sizes are told apart; in longer passes each token costs the same."""
_LEVEL, _HINT, _RATIO = 0.25, 0.1, 0.05
"""Shares of a deviation that the level takes over from a pass over one token and from one over several, and an established ratio."""
_OUTLIER = 0.25
"""The largest deviation, in logarithms, that a pass counts with: a pass that was interrupted is no measurement."""
_SLOPE, _BULK = 0.07, 0.09
"""What another token costs, in terms of the first, where nothing was measured: up to LIMIT of them, and in longer passes."""
_JUMP = 1.5
"""How much more than expected a token of a long pass is believed to cost."""
_PERIOD, _FADE = 64, 0.2
"""After so many passes, sizes that were not among them go this share of the way back to where they began: one that was measured wrongly, so
that nobody chooses it, is tried again."""


class Costs:
    """T(m), the seconds of a pass over m tokens.

    ``level``: T(1) at present, None before the first pass. ``ratios``: T(m) / T(1) by size, ``bulk``: what each token of a pass of more
    costs. ``passes``: how many were learnt from.
    """

    def __init__(self) -> None:
        self.level: float | None = None
        self.ratios = {size: 1 + _SLOPE * (size - 1) for size in SIZES}
        self.bulk = _BULK
        self.passes = 0
        self._counts = dict.fromkeys(SIZES, 0)
        self._lately: set[int] = set()

    @property
    def reach(self) -> int:
        """The most tokens of a pass whose cost is known or near to what is known: twice as many as were ever measured."""
        return min(LIMIT, 2 * max((size for size, count in self._counts.items() if count), default=0))

    def seconds(self, m: int, unknown: float = 1.0) -> float:
        """Expected seconds of a pass over m tokens. ``unknown``: stands for T(1) before the first pass."""
        level = unknown if self.level is None else self.level
        return level * (self.ratios[size_of(m)] if m <= LIMIT else max(self.ratios[LIMIT], self.bulk * m))

    def took(self, m: int, seconds: float) -> None:
        """A pass over m tokens took so many seconds."""
        if seconds <= 0:
            return
        if m > LIMIT:
            self._took_more(m, seconds)
            return
        size = size_of(m)
        if self.level is None:
            self.level = seconds / self.ratios[size]
        else:
            self._learn(size, math.log(seconds / (self.level * self.ratios[size])))
        self._counts[size] += 1
        self._extend()
        self._lately.add(size)
        self.passes += 1
        if self.passes % _PERIOD == 0:
            self._fade()

    def put(self, level: float, ratios: dict[int, float], bulk: float) -> None:
        """Begin with what was learnt before."""
        self.level, self.bulk = level, min(1.0, bulk)
        for size, ratio in ratios.items():
            self._set(size, ratio)
            self._counts[size] = round(1 / _RATIO)

    def _took_more(self, m: int, seconds: float) -> None:
        if self.level is not None:
            # The first pass of a process touches memory for the first time.
            self.bulk += (min(1.0, _JUMP * self.bulk, seconds / self.level / m) - self.bulk) / 4

    def _learn(self, size: int, off: float) -> None:
        # A size that was hardly measured explains a deviation by itself, one that is established by the machine's speed.
        share = max(_RATIO, 1 / (1 + self._counts[size])) if size > 1 else 0.0
        clipped = off if share > 1 / 3 else max(-_OUTLIER, min(_OUTLIER, off))
        self._set(size, self.ratios[size] * math.exp(share * clipped))
        assert self.level is not None
        self.level *= math.exp((1 - share) * (_LEVEL if size == 1 else _HINT) * max(-_OUTLIER, min(_OUTLIER, off)))

    def _set(self, size: int, ratio: float) -> None:
        if size > 1:  # m tokens never cost less than one, nor more than m passes
            self.ratios[size] = max(1.0, min(float(size), ratio))

    def _fade(self) -> None:
        for size in set(SIZES) - self._lately:
            ratio, expected = self.ratios[size], 1 + _SLOPE * (size - 1)
            self._set(size, ratio * (expected / ratio) ** _FADE)
        self._lately.clear()

    def _extend(self) -> None:
        """What was never measured goes on as steeply as what was."""
        slope = _SLOPE
        for size in SIZES:
            if self._counts[size]:
                slope = max(_SLOPE, (self.ratios[size] - 1) / max(1, size - 1))
            else:
                self._set(size, 1 + slope * (size - 1))


def size_of(m: int) -> int:
    """The size under which m tokens are booked: kernels serve 1, 2, 4, 8 or 16 columns, and empty ones cost as much."""
    return 1 << (m - 1).bit_length()


SIZES = tuple(1 << n for n in range(LIMIT.bit_length()))
