"""Lines on disk: whole or not there, within the budget, and nothing foreign."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from localllm.store import kv
from localllm.store.kv import LineFolder, make_room

KEY = bytes(range(32))


def tokens(*ids: int) -> kv.Tokens:
    return np.array(ids, np.int32)


def saying(data: bytes) -> Callable[[BinaryIO], None]:
    def save(file: BinaryIO) -> None:
        file.write(data)

    return save


def folder(root: Path, budget: int = 10**6, key: bytes = KEY) -> LineFolder:
    return LineFolder(root, key, budget)


def content(of: LineFolder) -> dict[tuple[int, ...], bytes]:
    found = {}
    for line in of.lines():
        with of.open(line) as file:
            found[tuple(line.tokens.tolist())] = file.read()
    return found


def test_what_is_written_is_read_by_another(tmp_path: Path) -> None:
    one, two = folder(tmp_path / "kv"), folder(tmp_path / "kv")
    assert one.lines() == []
    assert one.write(tokens(1, 2, 3), 0.5, 10, saying(b"first"))
    assert content(two) == {(1, 2, 3): b"first"}
    two.write(tokens(1, 2), 0.25, 10, saying(b"second"))
    assert content(one) == {(1, 2, 3): b"first", (1, 2): b"second"}
    assert {line.seconds for line in one.lines()} == {0.5, 0.25}
    assert content(folder(tmp_path / "kv", key=KEY[::-1])) == {}
    one.remove(next(line for line in one.lines() if len(line.tokens) == 2))
    assert content(two) == {(1, 2, 3): b"first"}


def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    folder(tmp_path / "kv").write(tokens(1), 1, 10, saying(b"x"))
    (path,) = (tmp_path / "kv").glob("*/*")
    if os.name != "nt":
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_file_used_longest_ago_makes_room(tmp_path: Path) -> None:
    lines = folder(tmp_path, 3500)
    for n in (1, 2, 3):
        lines.write(tokens(n), 1, 1000, saying(bytes(1000)))
    age(tmp_path)
    with lines.open(next(line for line in lines.lines() if line.tokens[0] == 1)):
        pass  # it counts as used now
    lines.write(tokens(4), 1, 1000, saying(bytes(1000)))
    assert {line.tokens[0] for line in lines.lines()} == {1, 3, 4}
    other = folder(tmp_path, 3500, KEY[::-1])
    other.write(tokens(5), 1, 2000, saying(bytes(2000)))
    assert {line.tokens[0] for line in lines.lines()} == {4}
    assert not lines.write(tokens(6), 1, 3501, saying(b"more than the budget"))
    assert len(other.lines()) == len(lines.lines()) == 1


def age(root: Path) -> None:
    """Make all files older, in the order of their tokens."""
    for n, path in enumerate(sorted(root.glob("*/*"), key=lambda path: path.read_bytes()[56])):
        os.utime(path, ns=(10**18 + n, 10**18 + n))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: b"GGUF" + data[4:],
        lambda data: data[:60] + b"\xff" + data[61:],
        lambda data: data[:40] + (2**62).to_bytes(8, "little") + data[48:],
        lambda data: data[:8] + bytes(32) + data[40:],
    ],
)
def test_damaged_and_foreign_files_are_removed(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    lines = folder(tmp_path)
    lines.write(tokens(1, 2), 1, 10, saying(b"good"))
    (good,) = tmp_path.glob("*/*")
    bad = good.with_name("0" * 32 + ".kv")
    bad.write_bytes(damage(good.read_bytes()))
    assert content(lines) == content(folder(tmp_path)) == {(1, 2): b"good"}
    assert not bad.exists()


@pytest.mark.skipif(os.name == "nt", reason="no links or pipes")
def test_links_pipes_and_folders_are_no_files(tmp_path: Path) -> None:
    lines = folder(tmp_path / "kv")
    lines.write(tokens(1), 1, 10, saying(b"good"))
    (good,) = (tmp_path / "kv").glob("*/*")
    moved = tmp_path / "elsewhere.kv"
    moved.write_bytes(good.read_bytes())
    good.with_name("a.kv").symlink_to(moved)
    os.mkfifo(good.with_name("b.kv"))
    good.with_name("c.kv").mkdir()
    good.with_name("notes.txt").write_text("mine")
    assert content(lines) == {(1,): b"good"}
    assert moved.exists()
    assert sorted(path.name for path in good.parent.iterdir()) == sorted([good.name, "c.kv"])


def test_a_line_that_goes_away_is_no_line(tmp_path: Path) -> None:
    lines = folder(tmp_path)
    lines.write(tokens(1), 1, 10, saying(b"x"))
    (line,) = lines.lines()
    line.path.unlink()
    with pytest.raises(FileNotFoundError), lines.open(line):
        pass
    assert lines.lines() == []


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(file: BinaryIO) -> None:
        file.write(bytes(100_000))
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        folder(tmp_path).write(tokens(1), 1, 10, fail)
    assert list(tmp_path.glob("*/*")) == []


WRITER = """
import os, sys, time
from pathlib import Path
import numpy as np
from localllm.store.kv import LineFolder

def save(file):
    file.write(bytes(100_000))
    print("writing", flush=True)
    time.sleep(60)

LineFolder(Path(sys.argv[1]), bytes(range(32)), 10**6).write(np.array([7], np.int32), 1.0, 10, save)
"""


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline().strip() == b"writing"
        make_room(tmp_path, 0)
        drafts = list(tmp_path.glob("*/*"))
        assert len(drafts) == 1 and folder(tmp_path).lines() == []
        writer.kill()
        writer.wait()
        make_room(tmp_path, 10**6)
    assert list(tmp_path.glob("*/*")) == []
    make_room(tmp_path, 10**6)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.kv").write_bytes(bytes(100))
    folder(tmp_path, 50).write(tokens(1), 1, 10, saying(b"x"))
    assert (tmp_path / "photos" / "a.kv").exists()
