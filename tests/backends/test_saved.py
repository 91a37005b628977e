"""Saved lines: the same bits behind them, and nothing but an error from any file that is not one."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localllm.backends.base import Session
from localllm.backends.saved import HEADER, Form
from localllm.errors import BackendError, SavedLineError
from tests import tiny
from tests.backends import run

TOKENS = np.random.default_rng(3).integers(0, 300, 200).tolist()
LENGTHS = (0, 1, 63, 64, 65, 150)


@pytest.fixture(scope="module", params=[("cpu", "llama"), ("cpu", "gemma3"), ("reference", "llama")], ids="-".join)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    backend, family = request.param
    with run.session(tiny.write(tmp_path_factory.mktemp("tiny") / "a.gguf", family, window=16), backend) as session:
        yield session


def is_reference(session: Session) -> bool:
    return session.fingerprint.startswith("f32")


def saved(session: Session, n: int) -> bytes:
    line, file = session.new_line(), io.BytesIO()
    if n:
        run.feed(session, line, TOKENS[:n], [])
    line.save(file)
    line.close()
    return file.getvalue()


@pytest.mark.parametrize("n", LENGTHS)
def test_the_same_bits_behind_a_restored_line(opened: Session, n: int) -> None:
    whole = opened.new_line()
    if n:
        run.feed(opened, whole, TOKENS[:n], [])
    data = saved(opened, n)
    file = io.BytesIO(data + b"more")
    line = opened.restore(file)
    assert line.length == n and file.read() == b"more"
    assert np.array_equal(run.feed(opened, line, TOKENS[n:]), run.feed(opened, whole, TOKENS[n:]))
    for each in (line, whole):
        assert each.truncate(n) == each.length


def test_the_last_rows_of_a_restored_line_can_be_returned_to(opened: Session) -> None:
    whole = opened.new_line()
    expected = run.feed(opened, whole, TOKENS)
    line = opened.restore(io.BytesIO(saved(opened, 150)))
    for n in (149, 140, 134):
        assert line.truncate(n) == n
        found = run.feed(opened, line, TOKENS[n:150], [0])
        # The reference adds up in another order for another number of rows.
        np.testing.assert_allclose(found, expected[n : n + 1], rtol=0, atol=1e-4 if is_reference(opened) else 0)
        line = opened.restore(io.BytesIO(saved(opened, 150)))


def test_a_line_gives_the_same_file_whatever_its_pages_held_before(opened: Session) -> None:
    fresh = saved(opened, 150)
    line = opened.new_line()
    run.feed(opened, line, TOKENS[::-1], [])
    line.close()
    assert saved(opened, 150) == fresh


def test_forks_are_saved_like_their_origin(opened: Session) -> None:
    line, file = opened.new_line(), io.BytesIO()
    run.feed(opened, line, TOKENS[:150], [])
    fork = line.fork()
    run.feed(opened, line, TOKENS[::-1], [])
    fork.save(file)
    assert file.getvalue() == saved(opened, 150)


class Slow(io.BytesIO):
    """Gives a few bytes at a time, as sockets do."""

    def read(self, n: int | None = -1, /) -> bytes:
        return super().read(min(n or 0, 1000))

    def readinto(self, buffer: Any, /) -> int:
        return super().readinto(memoryview(buffer)[:1000])


def test_a_file_that_gives_little_at_a_time(opened: Session) -> None:
    assert opened.restore(Slow(saved(opened, 70))).length == 70


@pytest.mark.parametrize("n", (0, 70))
def test_every_damaged_byte_is_found(opened: Session, n: int) -> None:
    data = saved(opened, n)
    places = {*range(min(len(data), 120)), *range(0, len(data), 997), len(data) - 1}
    for place in places:
        with pytest.raises(SavedLineError):
            opened.restore(io.BytesIO(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]))


@pytest.mark.parametrize("n", (0, 70))
def test_every_shortened_file_is_refused(opened: Session, n: int) -> None:
    data = saved(opened, n)
    for end in {0, 1, 8, 84, *range(0, len(data), 1013), len(data) - 1}:
        with pytest.raises(SavedLineError):
            opened.restore(io.BytesIO(data[:end]))


@pytest.mark.parametrize(
    ("at", "kind", "value"),
    [(8, "<I", 2), (12, "<I", 32), (16, "<8s", b"f17"), (24, "<8s", b"q8_0"), (32, "<32s", bytes(32))]
    + [(64, "<Q", n) for n in (0, 1, 65, 128, 2**31, 2**32, 2**63, 2**64 - 1)]
    + [(72, "<Q", n) for n in (0, 1, 12, 2**40, 2**64 - 1)],
)
def test_a_header_that_lies_is_refused_although_its_checksum_is_right(opened: Session, at: int, kind: str, value: object) -> None:
    data = bytearray(saved(opened, 70))
    struct.pack_into(kind, data, at, value)
    struct.pack_into("<I", data, HEADER.size, zlib.crc32(data[: HEADER.size]))
    with pytest.raises(SavedLineError):
        opened.restore(io.BytesIO(data))


def test_a_file_of_another_model_is_refused(opened: Session, tmp_path: Path) -> None:
    data = saved(opened, 20)
    backend = "reference" if is_reference(opened) else "cpu"
    with run.session(tiny.write(tmp_path / "b.gguf", rope={"freq_base": 500.0}), backend) as other:
        assert other.fingerprint != opened.fingerprint
        with pytest.raises(SavedLineError, match="fingerprint"):
            other.restore(io.BytesIO(data))


def test_pages_of_a_refused_file_are_given_back(tmp_path: Path) -> None:
    with run.session(tiny.write(tmp_path / "a.gguf"), "cpu") as session:
        data = saved(session, 200)
        pool = session._engine.storage.pools[0]  # type: ignore[attr-defined]
        free = len(pool._free)
        with pytest.raises(SavedLineError):
            session.restore(io.BytesIO(data[:-1]))
        assert len(pool._free) == free


def test_a_closed_line_is_not_saved(opened: Session) -> None:
    line = opened.new_line()
    line.close()
    for use in (lambda: line.save(io.BytesIO()), line.checkpoint, line.fork):
        with pytest.raises(BackendError, match="closed"):
            use()


def test_the_header(opened: Session) -> None:
    data = saved(opened, 70)
    magic, version, _, k, v, fingerprint, tokens, nbytes = HEADER.unpack(data[: HEADER.size])
    assert (magic, version, tokens) == (b"\x93LLMLINE", 1, 70)
    assert nbytes == len(data) - HEADER.size - 4
    assert Form(1, k.rstrip(b"\0").decode(), v.rstrip(b"\0").decode(), fingerprint).digest == opened.fingerprint
