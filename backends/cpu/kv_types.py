"""How keys and values lie in a page, by type. A page has for each layer and key head the keys of TILE tokens, then their values.

"f16", "f32"  keys [TILE/16][wide][16 keys], values [TILE][wide]
"q8_0"        32 values of a head share a float16 step, largest |x| / 127. Keys: codes + 128 as bytes [TILE/16][wide/4][16 keys][4], so that
              one instruction takes 4 values of 16 keys, then steps [TILE/16][wide/32][16 keys]. Values: codes [TILE][wide], then steps
              [TILE][wide/32]
"q4_0"        the step is the largest x by magnitude / -8, as in GGUF; codes + 8 in half a byte.
              Keys [TILE/16][wide/32][4][16 keys][4]: byte j of word i has value 4i + j of the block in its low half, value 16 + 4i + j in
              its high one. Values [TILE][wide/32][16]: byte j has the values j and 16 + j. Steps as above

Keys are rotated before they are quantised (``cache_store.rotate``), and queries with them, which are quantised too: ``rope_store`` leaves
of each query head, where its d floats were, int8 codes [wide], float32 steps [wide/32], and int32 [wide/32]: minus the sum of the codes,
times what was added to the keys' codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from localllm.backends.cpu.records import TILE

BITS = {"f32": 32, "f16": 16, "q8_0": 8, "q4_0": 4}
"""Bits of a value, its step left out."""
QUANTISED = ("q8_0", "q4_0")
BLOCK = 32
"""Values that share a step."""
KEYS = 16
"""Keys side by side."""
SMALLEST = 16
"""The narrowest head whose floats have room for its quantised form."""


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """The part of a page that one key head of a layer has. ``k``, ``v``: types; ``d``: width of the head."""

    k: str
    v: str
    d: int

    @property
    def wide(self) -> int:
        """The width that everything is padded to with zeros."""
        unit = BLOCK if self.k in QUANTISED or self.v in QUANTISED else 16
        return -(-self.d // unit) * unit

    @property
    def key_bytes(self) -> int:
        """Bytes of the keys, behind which the values are."""
        return self._codes(self.k) + self._steps(self.k)

    @property
    def bytes(self) -> int:
        """Bytes of the whole."""
        return self.key_bytes + self._codes(self.v) + self._steps(self.v)

    def regions(self) -> Iterator[tuple[int, int, int]]:
        """(offset, bytes, lane) of everything that differs in layout: bytes of one of 16 keys side by side, or 0 where tokens follow one
        another."""
        codes, steps = self._codes(self.k), self._steps(self.k)
        yield 0, codes, 4 if self.k in QUANTISED else BITS[self.k] // 8
        yield codes, steps, 2
        yield self.key_bytes, self._codes(self.v), 0
        yield self.key_bytes + self._codes(self.v), self._steps(self.v), 0

    def words(self) -> dict[str, int]:
        """Words of the kernels' records."""
        return {"wide": self.wide, "key_bytes": self.key_bytes, "head_bytes": self.bytes}

    def _codes(self, kind: str) -> int:
        return TILE * self.wide * BITS[kind] // 8

    def _steps(self, kind: str) -> int:
        return TILE * (self.wide // BLOCK) * 2 if kind in QUANTISED else 0
