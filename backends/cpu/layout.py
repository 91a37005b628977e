"""How weights lie in memory: one packed form per storage format, read alike by one column and by many.

Rows are taken in groups of 64, four tiles of 16, so that one instruction serves 16 outputs: 64 bytes hold 4 values of each of 16 rows.
A record holds 64 rows x QK values: a head (scales of a superblock), then for every 32 values a sub-record: scales, then the values of tile
0..3, of each first those of their bits that stand apart. Kernels read in that order: processors are best at fetching one line of memory
behind the other. Groups follow one another, each with its records in the order of the row. Rows are padded to 64 with scales of zero.

A value is  (code - offset) * d  (+ m): codes are unsigned bytes once unpacked, d and m float32 exact products of what the file holds.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = 64
"""Rows that lie together."""


@dataclass(frozen=True, slots=True)
class Layout:
    """``name``: the storage format.

    ``qk``: values in a record and ``file_bytes`` of the file that they come from; ``codes``: how values are packed;
    ``tile_bytes``: 16 rows x 32 values; ``scales``: how scales are packed, in ``sub_scales`` bytes per 32 values and ``head`` per record;
    ``offset``: what is subtracted from a code; ``mins``: there is an m; ``halves``: d and m differ between the first and the last 16 of 32;
    ``wide``: codes exceed 127; ``unit``: a power of two that d has besides what the scales hold.
    """

    name: str
    qk: int
    file_bytes: int
    codes: str
    tile_bytes: int
    scales: str
    sub_scales: int
    head: int
    offset: int
    mins: bool = False
    halves: bool = False
    wide: bool = False
    unit: float = 1.0

    @property
    def sub_bytes(self) -> int:
        """Bytes of a sub-record: 64 rows x 32 values."""
        return 4 * self.tile_bytes + self.sub_scales

    @property
    def codes_at(self) -> int:
        """Where the values of a sub-record begin: behind its scales."""
        return self.sub_scales

    @property
    def record_bytes(self) -> int:
        """Bytes of a record: 64 rows x qk values."""
        return self.head + self.qk // 32 * self.sub_bytes

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of 16 rows x 32 values, unpacked: a byte a value, then float32 d (two with halves), then m alike."""
        return 512 + 64 * (1 + self.halves) * (1 + self.mins)

    def packed_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a whole matrix."""
        return -(-rows // GROUP) * (columns // self.qk) * self.record_bytes


_ALL = (
    Layout("Q4_0", 32, 18, "nibble", 256, "half", 128, 0, 8),
    Layout("Q4_1", 32, 20, "nibble", 256, "half", 256, 0, 0, mins=True),
    Layout("Q5_0", 32, 22, "five", 320, "half", 128, 0, 16),
    Layout("Q5_1", 32, 24, "five", 320, "half", 256, 0, 0, mins=True),
    Layout("Q8_0", 32, 34, "byte", 512, "half", 128, 0, 128, wide=True),
    Layout("IQ4_NL", 32, 18, "codebook", 256, "half", 128, 0, 128, wide=True),
    Layout("Q4_K", 256, 144, "nibble", 256, "super", 128, 256, 0, mins=True),
    Layout("Q5_K", 256, 176, "five", 320, "super", 128, 256, 0, mins=True),
    Layout("Q6_K", 256, 210, "six", 384, "signed", 128, 128, 32, halves=True),
    Layout("IQ4_XS", 256, 136, "codebook", 256, "signed", 64, 128, 128, wide=True),
    Layout("Q2_K", 256, 84, "two", 128, "both", 128, 256, 0, mins=True, halves=True),
    Layout("Q3_K", 256, 110, "three", 192, "signed", 128, 128, 32, halves=True, unit=1 / 8),
    Layout("TQ1_0", 256, 54, "ternary", 128, "head", 0, 128, 8, unit=1 / 8),
    Layout("TQ2_0", 256, 66, "ternary", 128, "head", 0, 128, 8, unit=1 / 8),
    Layout("Q1_0", 128, 18, "one", 64, "head", 0, 128, 8, unit=1 / 8),
    Layout("Q2_0", 64, 18, "ternary", 128, "head", 0, 128, 8, unit=1 / 8),
    Layout("MXFP4", 32, 17, "e2m1", 256, "power", 64, 0, 16),
    Layout("NVFP4", 64, 36, "e2m1_halves", 256, "e4m3", 128, 0, 32, halves=True, unit=128.0),
    Layout("IQ1_S", 256, 50, "ternary", 128, "delta", 64, 128, 8, mins=True, unit=1 / 8),
    Layout("IQ1_M", 256, 56, "iq1_m", 192, "signed", 128, 128, 32, halves=True, unit=1 / 8),
    Layout("IQ2_XXS", 256, 66, "iq2", 192, "signed", 64, 128, 128, wide=True, unit=1 / 8),
    Layout("IQ2_XS", 256, 74, "iq2_halves", 192, "signed", 128, 128, 64, halves=True, unit=1 / 8),
    Layout("IQ2_S", 256, 82, "iq2_halves", 192, "signed", 128, 128, 64, halves=True, unit=1 / 8),
    Layout("IQ3_XXS", 256, 98, "iq3_xxs", 256, "signed", 64, 128, 128, wide=True, unit=1 / 4),
    Layout("IQ3_S", 256, 110, "iq3_s", 256, "signed", 64, 128, 16),
)
LAYOUTS = {layout.name: layout for layout in _ALL}

FLOATS = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes of a value of the formats that are not blocks. Packed as [group of 64 rows][column][64 rows]."""
SPAN = 192
"""Columns of 64 rows of floats that the kernel for many rows widens at once: 48 KiB."""

# Activations of N rows (a column tile): for every 32 values 64*N bytes.
X_BLOCK = 64
X_VALUES, X_C8, X_C16, X_C128, X_C32A, X_C32B, X_STEP, X_SUM, X_SUM_A = (0, 32, 36, 40, 44, 48, 52, 56, 60)
"""Offsets, times N: int8 values [8][N][4]; int32 -8, -16, -128 * the sum of the 32, -32 * the sum of the first and of the last 16; float32
step of these 32, step * the sum of the 32, and of the first 16."""
FEW, MANY = 8, 16
"""The most rows that go to the kernels for few, which unpack while they multiply; columns in a tile of the kernels for many."""


def activation_bytes(columns: int, n: int) -> int:
    """Bytes of a tile of n rows of activations of that many columns."""
    return n * columns // 32 * X_BLOCK


def padded(n: int, to: int = GROUP) -> int:
    """n rounded up."""
    return -(-n // to) * to
