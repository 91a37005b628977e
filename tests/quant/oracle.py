"""What the tests of the formats share: blocks written by hand, random and edge blocks, and the gguf package to compare with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from localllm import quant
from localllm.quant.blocks import Bytes, Float

HALVES = (0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01)
"""float16: zeros, smallest and largest denormals, smallest normal, one, largest, infinities, NaNs."""


def raw(name: str, parts: Mapping[int, str], fill: int = 0) -> Bytes:
    """One block of a format: bytes in hexadecimal at their offsets, the others ``fill``."""
    block = np.full(quant.lookup(name).block_bytes, fill, np.uint8)
    for offset, text in parts.items():
        piece = np.frombuffer(bytes.fromhex(text), np.uint8)
        block[offset : offset + len(piece)] = piece
    return block


def check(name: str, block: Bytes, values: Mapping[int | range, float], rest: float) -> None:
    """Assert that the block stands for ``values``, by place, and ``rest`` everywhere else."""
    expected = np.full(quant.lookup(name).block_size, rest, np.float32)
    for place, value in values.items():
        expected[list(place) if isinstance(place, range) else place] = value
    found = quant.dequantize(block, name)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def random_blocks(name: str, count: int = 48, seed: int = 7) -> Bytes:
    """Uniformly random bytes: every code, every kind of scale. (count, block_bytes)."""
    return np.random.default_rng(seed).integers(0, 256, (count, quant.lookup(name).block_bytes), np.uint8)


def edge_blocks(name: str) -> Bytes:
    """Every special scale with codes all low, all high and random. (n, block_bytes)."""
    codes = random_blocks(name, len(HALVES), seed=11)
    rows = np.concatenate([np.zeros_like(codes), np.full_like(codes, 255), codes])
    blocks = rows.view(quant.format(name).block)[:, 0]
    special = np.tile(np.array(HALVES, np.uint16), 3)
    for field in blocks.dtype.names or ():
        kind = blocks.dtype[field]
        if kind == np.float16:
            blocks[field] = special.view(np.float16)
        elif name == "IQ1_M" and field == "scales":
            blocks[field] = (blocks[field] & 0xFFF) | (special[:, None] >> np.array([0, 4, 8, 12], np.uint16) & 15) << 12
    return rows


def same(a: Float, b: Float) -> NDArray[np.bool_]:
    """Equal bits, or both NaN."""
    same_bits: NDArray[np.bool_] = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    return same_bits


def agrees(name: str) -> None:
    """Assert that dequantisation equals the gguf package's, bit for bit, on random and on edge blocks."""
    import gguf.quants

    if not hasattr(gguf.quants, name) and name not in ("F32", "F16"):
        pytest.skip(f"this gguf package can't dequantise {name}")
    kind = gguf.GGMLQuantizationType[name]
    for blocks in (random_blocks(name), edge_blocks(name)):
        with np.errstate(all="ignore"):
            expected = gguf.quants.dequantize(blocks, kind)
        assert same(quant.dequantize(blocks, name), expected).all()


def quantizes_like_gguf(name: str) -> None:
    """Assert that quantisation gives the gguf package's bytes."""
    import gguf.quants

    rng = np.random.default_rng(5)
    values = rng.standard_normal((6, 1024)).astype(np.float32) * np.float32(0.1)
    values[1] = 0
    values[2, ::3] = 0
    values[3] += 1
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)
    np.testing.assert_array_equal(quant.quantize(values, name), expected)
