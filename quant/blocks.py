"""What a quant format is: the layout of its blocks, and what can be done with rows of them.

A format's own functions see an array of blocks (n,) of its BLOCK dtype; Format gives them any leading axes, in pieces that
stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from localllm.errors import OptionError
from localllm.quant.base import TypeInfo, by_name

Bytes = NDArray[np.uint8]
Codes = NDArray[np.int8]
Float = NDArray[np.float32]
Blocks = NDArray[np.void]

_PIECE = 1 << 16  # values worked on at once: a few hundred KB of temporaries


class Integers(NamedTuple):
    """Blocks as integers: value = scale * code (+ minimum), exactly as ``dequantize`` computes it.

    codes (n, K); scale (n, G) and minimum (n, G), or None where it is zero, each for K/G consecutive codes.
    """

    codes: Codes
    scale: Float
    minimum: Float | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """A quant format. ``block``: its layout; the functions work on whole blocks, see ``dequantize`` and ``quantize``."""

    info: TypeInfo
    block: np.dtype[np.void]
    dequantize_blocks: Callable[[Blocks], Float]
    quantize_blocks: Callable[[Float], Blocks] | None = None

    def dequantize(self, blocks: Bytes) -> Float:
        """blocks (..., nblocks * block_bytes) -> values (..., nblocks * block_size). NaN and infinite scales give such values, quietly."""
        flat = self._blocks(blocks)
        out = np.empty((len(flat), self.info.block_size), np.float32)
        with np.errstate(all="ignore"):
            for piece in self._pieces(len(flat)):
                out[piece] = self.dequantize_blocks(flat[piece])
        return out.reshape(*blocks.shape[:-1], blocks.shape[-1] // self.info.block_bytes * self.info.block_size)

    @property
    def quantize(self) -> Callable[[NDArray[Any]], Bytes] | None:
        """None, or the function values (..., nblocks * block_size) -> blocks (..., nblocks * block_bytes).

        All formats but F32, F16 and BF16 raise OptionError for NaN, infinity, and values that need too large a scale.
        """
        return None if self.quantize_blocks is None else self._quantize

    def _quantize(self, values: NDArray[Any]) -> Bytes:
        flat = self._values(values)
        out = np.empty(len(flat), self.block)
        assert self.quantize_blocks is not None
        with np.errstate(all="ignore"):
            for piece in self._pieces(len(flat)):
                out[piece] = self.quantize_blocks(flat[piece])
        return out.view(np.uint8).reshape(*values.shape[:-1], values.shape[-1] // self.info.block_size * self.info.block_bytes)

    def _blocks(self, blocks: Bytes) -> Blocks:
        info = self.info
        if not isinstance(blocks, np.ndarray) or blocks.dtype != np.uint8 or blocks.ndim == 0:
            raise OptionError(
                f"{info.name} blocks: expected a NumPy array of uint8, got {_kind(blocks)}; use numpy.frombuffer(data, numpy.uint8)"
            )
        if blocks.shape[-1] % info.block_bytes:
            raise OptionError(f"{info.name} blocks: the last axis has {blocks.shape[-1]} bytes, expected a multiple of {info.block_bytes}")
        return np.ascontiguousarray(blocks).reshape(-1).view(self.block)

    def _values(self, values: NDArray[Any]) -> Float:
        info = self.info
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu" or values.ndim == 0:
            raise OptionError(f"{info.name} values: expected a NumPy array of floats, got {_kind(values)}")
        if values.shape[-1] % info.block_size:
            raise OptionError(f"{info.name} values: the last axis has {values.shape[-1]} values, expected a multiple of {info.block_size}")
        with np.errstate(all="ignore"):
            flat = np.ascontiguousarray(values, np.float32).reshape(-1, info.block_size)
        if info.block_size > 1 and not np.isfinite(flat).all():
            raise OptionError(f"{info.name} values: NaN or infinity can't be quantised; use F32, F16 or BF16")
        return flat

    def _pieces(self, count: int) -> Iterator[slice]:
        step = max(1, _PIECE // self.info.block_size)
        return (slice(start, start + step) for start in range(0, count, step))


def expand(integers: Integers) -> Float:
    """The values (n, K) that the integers stand for."""
    count, groups = integers.scale.shape
    values = integers.codes.reshape(count, groups, -1).astype(np.float32)
    values *= integers.scale[:, :, None]
    if integers.minimum is not None:
        values += integers.minimum[:, :, None]
    return values.reshape(count, -1)


def layout(name: str, fields: list[Any]) -> np.dtype[np.void]:
    """The packed dtype of a format's block; its size must be what GGUF says."""
    block: np.dtype[np.void] = np.dtype(fields)
    assert block.itemsize == by_name(name).block_bytes
    return block


def _kind(value: object) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
