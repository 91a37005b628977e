"""The block formats of GGUF tensors, one file each: layout, NumPy dequantisation, and quantisation where it is simple.

>>> localllm.quant.dequantize(blocks, "Q4_K")      # uint8 (..., bytes) -> float32 (..., values)
>>> localllm.quant.quantize(values, "Q8_0")        # and back
"""

from __future__ import annotations

import importlib
from typing import Any

from numpy.typing import NDArray

from localllm.errors import UnsupportedError
from localllm.quant.base import REMOVED, TypeInfo, by_id, by_name
from localllm.quant.blocks import Bytes, Float, Format

__all__ = ["NAMES", "Format", "TypeInfo", "dequantize", "format", "lookup", "quantize"]

NAMES = (
    "F32",
    "F16",
    "BF16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "IQ1_S",
    "IQ1_M",
    "IQ2_XXS",
    "IQ2_XS",
    "IQ2_S",
    "IQ3_XXS",
    "IQ3_S",
    "IQ4_NL",
    "IQ4_XS",
    "TQ1_0",
    "TQ2_0",
    "MXFP4",
    "NVFP4",
    "Q1_0",
    "Q2_0",
)
"""Every format that weights can have here."""


def lookup(type: str | int) -> TypeInfo:
    """The format's entry in the table of types, by name or by number; UnsupportedError for what is no format here."""
    info = _find(type)
    if info is not None and info.name in NAMES:
        return info
    known = ", ".join(f"{name} ({by_name(name).id})" for name in NAMES)
    if info is not None:
        raise UnsupportedError(f"tensor type {info.name} ({info.id}) is not a format of weights; these are: {known}")
    if type in REMOVED:
        raise UnsupportedError(
            f"tensor type {type} ({REMOVED[int(type)]}) was removed from GGUF: quantise the model again; known are: {known}"
        )
    raise UnsupportedError(f"tensor type {type!r} is not known; known are: {known}")


def format(type: str | int) -> Format:
    """The format of that name ("Q4_K") or number (12); its file is imported when it is first asked for."""
    info = lookup(type)
    found: Format = importlib.import_module(f"localllm.quant.{info.name.lower()}").FORMAT
    return found


def dequantize(blocks: Bytes, type: str | int) -> Float:
    """blocks (..., nblocks * block_bytes) -> values (..., nblocks * block_size), as llama.cpp defines them.

    Raises UnsupportedError for an unknown type, OptionError if the last axis is not whole blocks.
    """
    return format(type).dequantize(blocks)


def quantize(values: NDArray[Any], type: str | int) -> Bytes:
    """values (..., nblocks * block_size) -> blocks (..., nblocks * block_bytes).

    Raises UnsupportedError for a type that can't be quantised to here, OptionError for values that it can't hold.
    """
    function = format(type).quantize
    if function is None:
        can = ", ".join(name for name in NAMES if format(name).quantize is not None)
        raise UnsupportedError(f"quantising to {lookup(type).name} is not supported; supported are: {can}")
    return function(values)


def _find(type: str | int) -> TypeInfo | None:
    try:
        return by_name(type) if isinstance(type, str) else by_id(type)
    except KeyError:
        return None
