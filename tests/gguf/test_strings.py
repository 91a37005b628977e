"""The fast walk over an array of strings against the plain one, and the sequence that it makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localllm.gguf import Strings, open_gguf
from localllm.gguf.strings import _WINDOW, _chain, _plain
from tests.gguf.conftest import Save
from tests.gguf.writer import STRING, U32, Head, array, numbers, string

# What misleads the guess: lengths around 256, zeros that look like the bytes of a length, strings of lengths.
PIECES = st.sampled_from(
    [
        b"",
        b"\0",
        b"\0" * 7,
        b"\0" * 8,
        b"\0" * 40,
        b"a",
        b"a\0\0\0\0\0\0\0\0",
        b"x" * 255,
        b"x" * 256,
        b"\1" + bytes(7),
        string(b"abc") * 9,
        b"y" * 3000,
    ]
)


def made(raws: list[bytes], save: Save) -> Strings:
    strings = open_gguf(save(Head([(b"s", array(STRING, map(string, raws))), (b"after", numbers(U32, [5]))]))).metadata["s"]
    assert isinstance(strings, Strings)
    return strings


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(PIECES, st.binary(max_size=20)), min_size=1, max_size=50), st.integers(1, 40), st.integers(0, 40))
def test_the_fast_walk_is_the_plain_one(raws: list[bytes], times: int, cut: int) -> None:
    raws = raws * times
    window = b"".join(map(string, raws))
    window = window[: len(window) - cut]
    for count in (len(raws), len(raws) // 2 + 1):
        fast, fast_end = _chain(window, count)
        plain, plain_end = _plain(window, 0, count)
        assert np.array_equal(fast, plain)
        assert fast_end == plain_end


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=700, max_size=3000), st.integers(64, 400))
def test_the_fast_walk_over_anything(window: bytes, count: int) -> None:
    window = string(b"") * 3 + window
    fast, end = _chain(window, count)
    plain, plain_end = _plain(window, 0, count)
    assert np.array_equal(fast, plain)
    assert end == plain_end


@pytest.mark.parametrize("raw", [b"", b"ab", b"\0" * 9, b"z" * 300, b"w" * (_WINDOW + 5)])
def test_more_than_a_window(raw: bytes, save: Save) -> None:
    raws = [raw, b"%d" % len(raw)] * max(3, 3 * _WINDOW // (len(raw) + 18))
    strings = made(raws, save)
    assert strings.raws() == raws
    assert strings.raw(len(raws) - 2) == raw


def test_the_sequence(save: Save) -> None:
    strings = made([b"a", b"b", b"\xff", "ü".encode(), b"b"], save)
    assert list(strings) == ["a", "b", "\ufffd", "ü", "b"]
    assert (len(strings), strings[-2], strings[1:3], strings[::-2]) == (5, "ü", ["b", "\ufffd"], ["b", "\ufffd", "a"])
    assert (strings.index("ü"), strings.count("b"), "c" in strings) == (3, 2, False)
    assert (strings.raw(2), strings.raw(-1)) == (b"\xff", b"b")
    assert repr(strings) == "<Strings: 5: 'a', 'b', '\ufffd', ...>"
    for index in (5, -6):
        with pytest.raises(IndexError):
            strings[index]
    assert list(made([], save)) == []
