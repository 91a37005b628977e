"""Files that break the format, one after the other: each is refused, and the message names the offender."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from localllm.errors import GGUFError, LocalLLMError, TruncatedError, UnsupportedError
from localllm.gguf import open_gguf
from tests.gguf.conftest import Save
from tests.gguf.writer import ARRAY, BOOL, F32, STRING, U8, U32, U64, Entry, Head, Value, array, numbers, scalar, string, text

HUGE = 2**64 - 1
K = scalar(U32, 1)


def key(name: bytes, value: Value) -> Head:
    return Head([(name, value)], [Entry(b"t")])


def tensor(**changes: object) -> Head:
    return Head([(b"k", K)], [Entry(b"bad", **changes)])  # type: ignore[arg-type]


def nested(depth: int) -> Value:
    value = numbers(U8, [1])
    for _ in range(depth - 1):
        value = array(ARRAY, [value.raw])
    return value


def alignment(value: Value) -> Head:
    return key(b"general.alignment", value)


BROKEN: dict[str, tuple[Head | bytes, str]] = {
    "no keys although announced": (Head(key_count=1), "metadata"),
    "key count of all ones": (Head([(b"k", K)], key_count=HUGE), f"announces {HUGE} metadata keys"),
    "key count that wraps when multiplied": (Head([(b"k", K)], key_count=2**60), "announces"),
    "tensor count of all ones": (Head([(b"k", K)], [Entry(b"t")], tensor_count=HUGE), f"announces {HUGE} tensors"),
    "tensor count larger than the file": (Head([(b"k", K)], [Entry(b"t")], tensor_count=5000), "tensor table"),
    "more tensors than there are": (Head([(b"k", K)], [Entry(b"t")], tensor_count=2), "tensor 2 of 2"),
    "fewer keys than there are": (Head([(b"k", K), (b"l", K)], [Entry(b"t")], key_count=1), "tensor 'l'"),
    "key twice": (Head([(b"twin", K), (b"twin", K)]), "'twin' is there twice"),
    "empty key": (key(b"", K), "metadata key 1 of 1"),
    "key not UTF-8": (key(b"a\xff", K), "metadata key 1 of 1 is not UTF-8"),
    "key of 70000 bytes": (key(b"k" * 70000, K), "70000 bytes"),
    "key of 2^64 - 1 bytes": (Head([(b"k", K)]).build()[:24] + struct.pack("<Q", HUGE) + b"k" * 40, str(HUGE)),
    "value of type 13": (key(b"odd", Value(13, bytes(8))), "'odd' has type 13"),
    "value of type 2^32 - 1": (key(b"odd", Value(2**32 - 1, bytes(8))), "'odd' has type 4294967295"),
    "bool of 2": (key(b"flag", scalar(BOOL, 2)), "'flag' is a bool of value 2"),
    "bools with a 255": (key(b"flags", numbers(BOOL, [0, 1, 255])), "'flags' is an array of bools with a value 255"),
    "string of 2^64 - 1 bytes": (key(b"long", Value(STRING, string(b"x", HUGE))), "'long' would take"),
    "string of 2^64 - 8 bytes": (key(b"long", Value(STRING, string(b"x", 2**64 - 8))), "'long' would take"),
    "string of 2^63 bytes": (key(b"long", Value(STRING, string(b"x", 2**63))), "'long' would take"),
    "string longer than the file": (key(b"long", Value(STRING, string(b"x", 1000))), "inside metadata 'long'"),
    "array of type 13": (key(b"odd", array(13, [])), "'odd' is an array of type 13"),
    "array of 2^64 - 1 bytes": (key(b"many", array(U8, [], HUGE)), f"'many' (an array of {HUGE})"),
    "array whose size wraps": (key(b"many", array(U64, [], 2**61)), "'many'"),
    "array of 2^64 - 1 strings": (key(b"many", array(STRING, [], HUGE)), "'many'"),
    "strings, the second of 2^64 - 1 bytes": (
        key(b"many", array(STRING, [string(b"a"), string(b"b", HUGE), string(b"c")])),
        "'many' would take",
    ),
    "strings, the second longer than the file": (key(b"many", array(STRING, [string(b"a"), string(b"b", 9999), string(b"c")])), "'many'"),
    "fewer strings than announced": (Head([(b"many", array(STRING, [string(b"a")] * 9, 10))]), "'many'"),
    "array of 2^64 - 1 arrays": (key(b"many", array(ARRAY, [], HUGE)), "'many'"),
    "a million arrays": (key(b"many", array(ARRAY, [array(U8, []).raw] * 20000)), "'many' is an array of 20000 arrays"),
    "array nested five deep": (key(b"deep", nested(5)), "'deep' is an array nested deeper than 4"),
    "array nested a thousand deep": (key(b"deep", nested(1000)), "'deep' is an array nested deeper than 4"),
    "alignment 0": (alignment(scalar(U32, 0)), "general.alignment is '0'"),
    "alignment 24": (alignment(scalar(U32, 24)), "general.alignment is '24'"),
    "alignment 2^31": (alignment(scalar(U32, 2**31)), "general.alignment is '2147483648'"),
    "alignment of a half": (alignment(scalar(F32, 0.5)), "general.alignment is '0.5'"),
    "alignment true": (alignment(scalar(BOOL, 1)), "general.alignment is 'True'"),
    "alignment in words": (alignment(text(b"32\n")), r"general.alignment is '32\n'"),
    "tensor twice": (Head([], [Entry(b"twin"), Entry(b"twin")]), "'twin' is there twice"),
    "tensor without a name": (Head([], [Entry(b"")]), "tensor 1 of 1"),
    "tensor's name not UTF-8": (Head([], [Entry(b"\xc3\x28")]), "tensor 1 of 1 is not UTF-8"),
    "five axes": (tensor(ne=(32, 1, 1, 1, 1)), "'bad' has 5 axes"),
    "2^32 - 1 axes": (tensor(axes=2**32 - 1), "'bad' has 4294967295 axes"),
    "axis of 0": (tensor(ne=(32, 0)), "'bad' has an axis of length 0"),
    "axes that wrap to 0": (tensor(ne=(2**32, 2**32)), "'bad' of shape"),
    "axes that wrap to 32": (tensor(ne=(2**63 + 16, 2)), "'bad' of shape"),
    "axes that wrap in bytes": (tensor(ne=(2**62, 1)), "'bad' of shape"),
    "axis of 2^64 - 1": (tensor(ne=(HUGE,)), "'bad' of shape"),
    "four axes of 2^64 - 1": (tensor(ne=(HUGE,) * 4), "'bad' of shape"),
    "row that is no multiple of the block": (tensor(ne=(48,), type=8), "'bad' has rows of 48 values, expected a multiple of 32"),
    "offset not aligned": (tensor(offset=8), "'bad' is at offset 8"),
    "offset beyond the file": (tensor(offset=4096), "4096 bytes are missing"),
    "offset that wraps": (tensor(offset=2**64 - 32), "'bad' of shape [32] at offset 18446744073709551584"),
    "offset that overflows a signed number": (tensor(offset=2**63 - 32), "'bad'"),
    "larger than the file": (tensor(ne=(64,)), "128 bytes are missing"),
    "overlap": (Head([], [Entry(b"one"), Entry(b"two", offset=96)]), "'one' and 'two' overlap"),
    "overlap, later one first": (Head([], [Entry(b"one", offset=64), Entry(b"two", offset=0)]), "'two' and 'one' overlap"),
    "the same place": (Head([], [Entry(b"one"), Entry(b"two", offset=0)]), "'one' and 'two' overlap"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_it_is_refused_and_named(what: str, save: Save) -> None:
    content, message = BROKEN[what]
    path = save(content)
    with pytest.raises(GGUFError) as caught:
        open_gguf(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


UNKNOWN: dict[str, tuple[Head | bytes, str]] = {
    "tensor of type 99": (tensor(type=99), "'bad' has type 99"),
    "tensor of type 2^32 - 1": (tensor(type=2**32 - 1), "'bad' has type 4294967295"),
    "tensor of a type given up": (tensor(type=31), "Q4_0_4_4"),
    "version 1": (Head(version=1), "version 1"),
    "version 4": (Head(version=4), "version 4"),
    "version 0": (Head(version=0), "version 0"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_the_unknown_is_refused_by_number(what: str, save: Save) -> None:
    content, message = UNKNOWN[what]
    with pytest.raises(UnsupportedError) as caught:
        open_gguf(save(content))
    assert message in str(caught.value)


def test_every_cut_says_how_much_is_missing(save: Save) -> None:
    pairs = [(b"n", scalar(U32, 1)), (b"s", array(STRING, [string(b"ab")] * 70)), (b"v", numbers(F32, [1, 2]))]
    whole = Head(pairs, [Entry(b"one"), Entry(b"two")]).build()
    open_gguf(save(whole))
    for size in range(4, len(whole)):
        with pytest.raises(TruncatedError, match=r"bytes are missing") as caught:
            open_gguf(save(whole[:size]))
        missing = int(str(caught.value).split(" bytes are missing")[0].rsplit(" ", 1)[1])
        assert 0 < missing <= len(whole) - size
    assert missing == 1
    assert "'two' is the first that is cut" in str(caught.value)


def test_many_small_arrays_of_strings(save: Save) -> None:
    pairs = [(b"%d" % i, array(STRING, [string(b"")])) for i in range(30_000)]
    path = save(Head(pairs, [Entry(b"t", data=bytes(4 << 20), ne=(1 << 20,))]))
    start = time.perf_counter()
    open_gguf(path)
    assert time.perf_counter() - start < 2


BOMBS = {
    "empty strings": (STRING, string(b""), 400_000),
    "strings of zeros": (STRING, string(bytes(9)), 400_000),
    "strings just too long to guess": (STRING, string(b"a" * 256), 20_000),
    "strings full of lengths": (STRING, string(b"\1" + bytes(7)), 400_000),
    "arrays of nothing": (ARRAY, array(U8, []).raw, 16_000),
    "arrays of strings of nothing": (ARRAY, array(STRING, [string(b"")]).raw, 16_000),
}


@pytest.mark.parametrize("what", BOMBS)
def test_time_is_bounded(what: str, save: Save) -> None:
    type, item, count = BOMBS[what]
    path = save(key(b"bomb", array(type, [item] * count)))
    start = time.perf_counter()
    open_gguf(path)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("what", BOMBS)
def test_memory_follows_the_size_of_the_file(what: str, save: Save) -> None:
    type, item, count = BOMBS[what]
    path = save(key(b"bomb", array(type, [item] * (count // 8))))
    tracemalloc.start()
    try:
        open_gguf(path)
        assert tracemalloc.get_traced_memory()[1] < 2 * path.stat().st_size + (8 << 20)
    finally:
        tracemalloc.stop()


def test_many_tiny_tensors_and_keys(save: Save) -> None:
    pairs = [(b"%d" % i, scalar(U8, 0)) for i in range(20_000)]
    tensors = [Entry(b"%d" % i, ne=(1,), data=bytes(4), offset=4 * i) for i in range(20_000)]
    raw = Head([(b"general.alignment", scalar(U32, 1)), *pairs], tensors, alignment=1)
    path = save(raw)
    start = time.perf_counter()
    assert len(open_gguf(path).tensors) == 20_000
    assert time.perf_counter() - start < 2


def test_too_many_are_refused_before_they_are_read(save: Save) -> None:
    for head in (Head(key_count=65537), Head(tensor_count=65537)):
        with pytest.raises(GGUFError, match="expected at most 65536"):
            open_gguf(save(head.build() + bytes(4 << 20)))
    with pytest.raises(GGUFError, match="expected at most 4194304 in a file"):
        open_gguf(sparse(save, array(STRING, [], 4_194_305)))
    with pytest.raises(GGUFError, match=r"'bomb' \(an array of 300000000\) would take 300000000 bytes"):
        open_gguf(sparse(save, array(U8, [], 300_000_000)))


def sparse(save: Save, value: Value) -> Path:
    """A file whose data is a hole of 400 MB."""
    path = save(Head([(b"bomb", value)]))
    with path.open("r+b") as file:
        file.truncate(400_000_000)
    return path


def test_names_cannot_reach_the_terminal_raw(save: Save) -> None:
    with pytest.raises(LocalLLMError) as caught:
        open_gguf(save(Head([], [Entry(b"\x1b[2Jevil\r\n" + b"x" * 5000)] * 2)))
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 500
