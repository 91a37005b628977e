"""The streaming decoder: whole characters, none lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localllm.text.stream import StreamDecoder


def decoder(pieces: list[bytes]) -> StreamDecoder:
    return StreamDecoder(pieces.__getitem__)


@given(st.text(), st.data())
def test_valid_text_cut_anywhere(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    places = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *places], [*places, len(raw)], strict=True)]
    stream = decoder(pieces)
    parts = [stream.push(i) for i in range(len(pieces))]
    assert "".join(parts) == text
    assert stream.flush() == ""
    assert all("\ufffd" not in part for part in parts) or "\ufffd" in text


@given(st.lists(st.binary(max_size=5), max_size=10))
def test_any_bytes(pieces: list[bytes]) -> None:
    stream = decoder(pieces)
    parts = [stream.push(i) for i in range(len(pieces))]
    assert "".join(parts) + stream.flush() == b"".join(pieces).decode("utf-8", "replace")


def test_waits_until_it_is_certain() -> None:
    stream = decoder([b"a\xf0\x9f", b"\x98", b"\x80b", b"\xf0\x9f", b"c", b"\xe4\xb8"])
    assert [stream.push(i) for i in range(6)] == ["a", "", "\U0001f600b", "", "\ufffdc", ""]
    assert stream.flush() == "\ufffd"
    assert (stream.push(2), stream.flush()) == ("\ufffdb", "")
