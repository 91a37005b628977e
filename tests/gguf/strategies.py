"""Hypothesis strategies: GGUF files that are right, with what is in them, and ways to break them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from localllm.quant import base
from tests.gguf.writer import ARRAY, BOOL, F32, F64, FORMATS, STRING, U32, Entry, Head, Value, array, scalar, string, text

Pair = tuple[Value, Any]
EXTREMES = st.sampled_from(
    [0, 1, 2, 3, 31, 127, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]
)
"""Numbers that counts, lengths and offsets go wrong at."""


def _number(type: int) -> st.SearchStrategy[Pair]:
    if type in (F32, F64):
        values: st.SearchStrategy[Any] = st.floats(width=32 if type == F32 else 64, allow_nan=False)
    elif type == BOOL:
        values = st.booleans()
    else:
        bits = 8 * struct.calcsize(FORMATS[type])
        low = 0 if FORMATS[type].isupper() else -(1 << (bits - 1))
        values = st.integers(low, low + (1 << bits) - 1)
    return values.map(lambda value: (scalar(type, value), value))


def _array(type: int, items: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.lists(items, max_size=80).map(lambda pairs: (array(type, [pair[0].raw for pair in pairs]), [pair[1] for pair in pairs]))


def values() -> st.SearchStrategy[Pair]:
    """A metadata value and what reading it gives, arrays as lists and strings in arrays as bytes."""
    numbers = {type: _number(type) for type in FORMATS}
    raws = st.one_of(st.binary(max_size=12), st.text(max_size=12).map(str.encode), st.binary(min_size=250, max_size=300))
    strings = raws.map(lambda raw: (text(raw), raw))
    arrays = st.one_of(_array(STRING, strings), *(_array(type, numbers[type]) for type in FORMATS))
    nested = _array(ARRAY, st.one_of(arrays, _array(ARRAY, arrays)))
    scalars = st.one_of(*numbers.values(), raws.map(lambda raw: (text(raw), raw.decode("utf-8", "replace"))))
    return st.one_of(scalars, arrays, nested)


@st.composite
def entries(draw: st.DrawFn, name: bytes) -> Entry:
    """A tensor of a few rows."""
    info = draw(st.sampled_from(base.TYPES))
    ne = [info.block_size * draw(st.integers(1, 2)), *draw(st.lists(st.integers(1, 3), max_size=3))]
    size = ne[0] // info.block_size * info.block_bytes
    for axis in ne[1:]:
        size *= axis
    return Entry(name, ne, info.id, draw(st.integers(0, 255)).to_bytes(1) * size)


@dataclass(frozen=True)
class Made:
    """A file to be, and the metadata that it will be read as."""

    head: Head
    metadata: dict[str, Any]


@st.composite
def files(draw: st.DrawFn) -> Made:
    """A file without a fault."""
    names = st.text(min_size=1, max_size=20).filter(lambda name: name != "general.alignment" and not name.startswith("split."))
    made = draw(st.dictionaries(names, values(), max_size=6))
    alignment = draw(st.sampled_from([1, 8, 32, 64]))
    pairs = [(key.encode(), pair[0]) for key, pair in made.items()]
    metadata = {key: pair[1] for key, pair in made.items()}
    if alignment != 32 or draw(st.booleans()):
        pairs.append((b"general.alignment", scalar(U32, alignment)))
        metadata["general.alignment"] = alignment
    tensors = [draw(entries(name.encode())) for name in draw(st.sets(names, max_size=4))]
    return Made(Head(pairs, tensors, draw(st.sampled_from([2, 3])), alignment), metadata)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A file with a wrong number where its structure has one, or with damaged bytes, or both."""
    head = draw(files()).head
    for break_it in draw(st.lists(st.sampled_from([_counts, _value, _tensor]), max_size=2)):
        head = break_it(draw, head)
    raw = bytearray(head.build())
    for _ in range(draw(st.integers(0, 4))):
        draw(st.sampled_from([_flip, _overwrite, _cut, _repeat]))(draw, raw)
    return bytes(raw)


def _counts(draw: st.DrawFn, head: Head) -> Head:
    count = draw(EXTREMES)
    return replace(head, key_count=count) if draw(st.booleans()) else replace(head, tensor_count=count)


def _value(draw: st.DrawFn, head: Head) -> Head:
    length, type = draw(EXTREMES), draw(st.sampled_from([*range(14), 2**32 - 1]))
    bad: Callable[[], Value] = draw(
        st.sampled_from(
            [
                lambda: Value(STRING, string(b"abc", length)),
                lambda: array(type, [], length),
                lambda: array(STRING, [string(b""), string(b"a", length), string(b"b")]),
                lambda: array(ARRAY, [array(type, [bytes(20)]).raw], length),
                lambda: Value(type, bytes(12)),
            ]
        )
    )
    keys = [b"general.alignment", b"split.count", b"split.no", b"bad"]
    return replace(head, pairs=[*head.pairs, (draw(st.sampled_from(keys)), draw(st.sampled_from([bad(), scalar(U32, length % 2**32)])))])


def _tensor(draw: st.DrawFn, head: Head) -> Head:
    ne = draw(st.lists(EXTREMES, max_size=5))
    type = draw(st.sampled_from([0, 1, 2, 4, 12, 31, 99, 2**32 - 1]))
    entry = Entry(b"bad", ne, type, bytes(64), draw(st.none() | EXTREMES), draw(st.none() | EXTREMES.map(lambda n: n % 2**32)))
    return replace(head, tensors=[entry, *head.tensors] if draw(st.booleans()) else [*head.tensors, entry])


def _flip(draw: st.DrawFn, raw: bytearray) -> None:
    if raw:
        raw[draw(st.integers(0, len(raw) - 1))] ^= draw(st.integers(1, 255))


def _overwrite(draw: st.DrawFn, raw: bytearray) -> None:
    at = draw(st.integers(0, len(raw)))
    raw[at : at + 8] = struct.pack("<Q", draw(EXTREMES))


def _cut(draw: st.DrawFn, raw: bytearray) -> None:
    del raw[draw(st.integers(0, len(raw))) :]


def _repeat(draw: st.DrawFn, raw: bytearray) -> None:
    start, end = draw(st.integers(0, len(raw))), draw(st.integers(0, len(raw)))
    raw[end:end] = raw[start : start + 100]
