"""How much memory cached lines take, and how much they may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from localllm import memory

SHARE = 4
"""Without a budget given, all cached lines together take this part of the memory that would be free without them."""
_UNKNOWN = 1 << 30
"""The budget where nobody knows how much memory is free."""


def share_of_free(held: int) -> int:
    """The budget when none is given; ``held``: bytes that cached lines take now."""
    free = memory.free()
    return _UNKNOWN if free is None else (free + held) // SHARE


@dataclass(slots=True)
class Blocks:
    """Storage that entries hold, each block counted once."""

    total: int = 0
    _holders: dict[int, int] = field(default_factory=dict)

    def add(self, blocks: Mapping[int, int]) -> None:
        """One more entry that holds these: bytes by block."""
        for block, size in blocks.items():
            self._holders[block] = holders = self._holders.get(block, 0) + 1
            self.total += size if holders == 1 else 0

    def remove(self, blocks: Mapping[int, int]) -> None:
        """One less."""
        for block, size in blocks.items():
            holders = self._holders[block] = self._holders[block] - 1
            if holders == 0:
                del self._holders[block]
                self.total -= size
