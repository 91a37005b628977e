"""The types that a GGUF file may give a tensor: name, number, block size in values and in bytes.

Numbers and sizes are those of ggml's ``enum ggml_type`` and its block structs. Numbers that ggml gave up (REMOVED) are never given again.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A storage type. A row of n values takes n / block_size * block_bytes bytes; n is a multiple of block_size."""

    name: str
    id: int
    block_size: int
    block_bytes: int


TYPES: tuple[TypeInfo, ...] = (
    TypeInfo("F32", 0, 1, 4),
    TypeInfo("F16", 1, 1, 2),
    TypeInfo("Q4_0", 2, 32, 18),
    TypeInfo("Q4_1", 3, 32, 20),
    TypeInfo("Q5_0", 6, 32, 22),
    TypeInfo("Q5_1", 7, 32, 24),
    TypeInfo("Q8_0", 8, 32, 34),
    TypeInfo("Q8_1", 9, 32, 36),
    TypeInfo("Q2_K", 10, 256, 84),
    TypeInfo("Q3_K", 11, 256, 110),
    TypeInfo("Q4_K", 12, 256, 144),
    TypeInfo("Q5_K", 13, 256, 176),
    TypeInfo("Q6_K", 14, 256, 210),
    TypeInfo("Q8_K", 15, 256, 292),
    TypeInfo("IQ2_XXS", 16, 256, 66),
    TypeInfo("IQ2_XS", 17, 256, 74),
    TypeInfo("IQ3_XXS", 18, 256, 98),
    TypeInfo("IQ1_S", 19, 256, 50),
    TypeInfo("IQ4_NL", 20, 32, 18),
    TypeInfo("IQ3_S", 21, 256, 110),
    TypeInfo("IQ2_S", 22, 256, 82),
    TypeInfo("IQ4_XS", 23, 256, 136),
    TypeInfo("I8", 24, 1, 1),
    TypeInfo("I16", 25, 1, 2),
    TypeInfo("I32", 26, 1, 4),
    TypeInfo("I64", 27, 1, 8),
    TypeInfo("F64", 28, 1, 8),
    TypeInfo("IQ1_M", 29, 256, 56),
    TypeInfo("BF16", 30, 1, 2),
    TypeInfo("TQ1_0", 34, 256, 54),
    TypeInfo("TQ2_0", 35, 256, 66),
    TypeInfo("MXFP4", 39, 32, 17),
    TypeInfo("NVFP4", 40, 64, 36),
    TypeInfo("Q1_0", 41, 128, 18),
    TypeInfo("Q2_0", 42, 64, 18),
)
"""Every current type, by rising number. Q8_1 and Q8_K are activations' types, never a file's weights."""

REMOVED = MappingProxyType(
    {
        4: "Q4_2",
        5: "Q4_3",
        31: "Q4_0_4_4",
        32: "Q4_0_4_8",
        33: "Q4_0_8_8",
        36: "IQ4_NL_4_4",
        37: "IQ4_NL_4_8",
        38: "IQ4_NL_8_8",
    }
)
"""Types of old files, which ggml itself no longer reads."""

_BY_ID = {info.id: info for info in TYPES}
_BY_NAME = {info.name: info for info in TYPES}


def by_id(id: int) -> TypeInfo:
    """The type with this number in a file; KeyError if there is none."""
    return _BY_ID[id]


def by_name(name: str) -> TypeInfo:
    """The type of this name, such as "Q4_K"; KeyError if there is none."""
    return _BY_NAME[name]
