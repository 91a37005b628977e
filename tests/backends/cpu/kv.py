"""Keys, values and queries as the cache has them, encoded and decoded by NumPy as ``kv_types.py`` says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu.kv_types import HeadLayout
from localllm.backends.cpu.records import TILE

Array = NDArray[Any]


def encode(x: Array, kind: str) -> tuple[Array, Array]:
    """x (..., wide) -> codes (..., wide) as integers, without what is added to them, and steps (..., wide/32) float32."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    good = np.isfinite(blocks).all(axis=-1, keepdims=True)
    blocks = np.where(good, blocks, np.float32(0))
    if kind == "q8_0":
        steps, least, most = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127), -127, 127
    else:
        at = np.abs(blocks).argmax(axis=-1, keepdims=True)
        steps, least, most = np.take_along_axis(blocks, at, -1) / np.float32(-8), -8, 7
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.where(steps == 0, 0, blocks / steps)
    codes = np.clip(np.rint(codes) if kind == "q8_0" else np.floor(codes + np.float32(0.5)), least, most)
    return codes.astype(np.int32).reshape(x.shape), np.where(good, steps, np.nan)[..., 0]


def decode(codes: Array, steps: Array) -> Array:
    """The other way, float32."""
    return np.asarray(codes.astype(np.float32) * np.repeat(steps.astype(np.float32), 32, axis=-1))


def kept(x: Array, kind: str) -> NDArray[np.float32]:
    """x (..., d) as the cache keeps it."""
    if kind in ("f32", "f16"):
        return x.astype(kind.replace("f", "float")).astype(np.float32)
    codes, steps = encode(wide(x), kind)
    return np.asarray(decode(codes, steps.astype(np.float16))[..., : x.shape[-1]])


def wide(x: Array) -> Array:
    """Padded with zeros to whole blocks."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 32)])


def query_slots(q: Array, kind: str) -> NDArray[np.float32]:
    """Queries (rows, heads, d), as ``rope_store`` leaves them for keys of that type."""
    out = np.full(q.shape, np.nan, np.float32)
    codes, steps = encode(wide(q), "q8_0")
    added = -128 if kind == "q8_0" else -8
    sums = added * codes.reshape(*codes.shape[:-1], -1, 32).sum(axis=-1)
    parts = (codes.astype(np.int8), steps.astype(np.float32), sums.astype(np.int32))
    slot = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts], axis=-1)
    out.view(np.uint8)[..., : slot.shape[-1]] = slot
    return out


def queries(slots: Array, kind: str) -> NDArray[np.float32]:
    """Such slots as floats; asserts that their sums are right."""
    d = slots.shape[-1]
    n = -(-d // 32) * 32
    raw = np.ascontiguousarray(slots).view(np.uint8)
    codes = np.ascontiguousarray(raw[..., :n]).view(np.int8).astype(np.int32)
    steps = np.ascontiguousarray(raw[..., n : n + n // 8]).view(np.float32)
    sums = np.ascontiguousarray(raw[..., n + n // 8 : n + n // 4]).view(np.int32)
    assert np.array_equal(sums, (-128 if kind == "q8_0" else -8) * codes.reshape(*codes.shape[:-1], -1, 32).sum(axis=-1))
    return np.asarray(decode(codes, steps)[..., :d])


class Heads:
    """The keys and values of all heads of a layer in a page, as arrays that share its memory."""

    def __init__(self, part: NDArray[np.uint8], heads: int, layout: HeadLayout) -> None:
        part = part.reshape(heads, layout.bytes)
        self._layout, groups = layout, TILE // 16
        regions = [part[:, start : start + size] for start, size, _ in layout.regions()]
        self._k = regions[0].reshape(heads, groups, -1, 16, {"f32": 4, "f16": 2}.get(layout.k, 4))
        self._v = regions[2].reshape(heads, TILE, -1)
        self._k_steps = regions[1].view(np.float16).reshape(heads, groups, -1, 16)
        self._v_steps = regions[3].view(np.float16).reshape(heads, TILE, -1)

    def put(self, at: int, k: Array, v: Array) -> None:
        """Keys and values (heads, d) to place ``at``."""
        k, v = (np.pad(x, [(0, 0), (0, self._layout.wide - x.shape[1])]) for x in (k, v))
        self._k[:, at // 16, :, at % 16] = self._words(k, self._layout.k, at, self._k_steps[:, at // 16, :, at % 16])
        self._v[:, at] = self._bytes(v, self._layout.v, self._v_steps[:, at]).reshape(len(v), -1)

    def get(self, at: int) -> tuple[Array, Array]:
        """Both, (heads, wide)."""
        raw = np.ascontiguousarray(self._k[:, at // 16, :, at % 16]).reshape(len(self._k), -1)
        k = self._floats(raw, self._layout.k, self._k_steps[:, at // 16, :, at % 16], 128)
        return k, self._floats(np.ascontiguousarray(self._v[:, at]), self._layout.v, self._v_steps[:, at], 0)

    def _words(self, x: Array, kind: str, at: int, steps: Array) -> Array:
        codes = self._bytes(x, kind, steps)
        if kind == "q8_0":
            codes = codes ^ 0x80
        return codes.reshape(self._k[:, 0, :, 0].shape)

    def _bytes(self, x: Array, kind: str, steps: Array) -> Array:
        if kind in ("f32", "f16"):
            with np.errstate(over="ignore"):
                return np.ascontiguousarray(x.astype(kind.replace("f", "float"))).view(np.uint8)
        codes, found = encode(x, kind)
        steps[...] = found
        if kind == "q8_0":
            return codes.astype(np.int8).view(np.uint8)
        halves = (codes + 8).astype(np.uint8).reshape(len(x), -1, 2, 16)
        return np.asarray(halves[:, :, 0] | halves[:, :, 1] << 4)

    def _floats(self, raw: Array, kind: str, steps: Array, added: int) -> Array:
        if kind in ("f32", "f16"):
            return raw.view(kind.replace("f", "float")).astype(np.float32)
        if kind == "q8_0":
            return decode((raw.astype(np.int32) - added) if added else raw.view(np.int8).astype(np.int32), steps)
        halves = raw.reshape(len(raw), -1, 1, 16)
        codes = np.concatenate([halves & 15, halves >> 4], axis=2).astype(np.int32) - 8
        return decode(codes.reshape(len(raw), -1), steps)
