"""Models in several files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import pytest

from localllm.errors import FileError, GGUFError, TruncatedError
from localllm.gguf import open_gguf
from tests.gguf.writer import BOOL, I32, U16, U64, Entry, Head, Value, scalar

FIRST = "m-00001-of-00003.gguf"


def write_parts(folder: Path, stem: str = "m", count: int = 3, changes: Mapping[str, Value] = MappingProxyType({})) -> Path:
    """``count`` files, one tensor each; ``changes``: values of keys, by pPART_KEY."""
    for i in range(count):
        values = {"no": scalar(U16, i), "count": scalar(U16, count), "tensors": scalar(I32, count)}
        values |= {name.split("_")[1]: value for name, value in changes.items() if name.startswith(f"p{i + 1}_")}
        keys = {"no": b"split.no", "count": b"split.count", "tensors": b"split.tensors.count"}
        head = Head([(keys[name], value) for name, value in values.items()], [Entry(b"t%d" % i, data=bytes([i]) * 128)])
        (folder / f"{stem}-{i + 1:05}-of-{count:05}.gguf").write_bytes(head.build())
    return folder / f"{stem}-00001-of-{count:05}.gguf"


def refusal(path: Path, kind: type[Exception] = GGUFError) -> str:
    with pytest.raises(kind) as caught:
        open_gguf(path)
    return str(caught.value)


def test_parts_are_joined(tmp_path: Path) -> None:
    with open_gguf(write_parts(tmp_path)) as file:
        assert [path.name for path in file.paths] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
        assert [(tensor.name, tensor.shard) for tensor in file.tensors.values()] == [("t0", 0), ("t1", 1), ("t2", 2)]
        for i in range(3):
            assert file.read(f"t{i}").tolist() == [[i] * 128]


def test_parts_of_the_oracle(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "big.gguf", "llama", split_max_tensors=2, small_first_shard=True)
    tensors = {f"blk.{i}.weight": np.full((3, 32), i, np.float32) for i in range(5)}
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first = min(tmp_path.glob("*.gguf"))
    with open_gguf(first) as file:
        assert len(file.paths) == len(list(tmp_path.glob("*.gguf"))) > 2
        assert list(file.tensors) == list(tensors)
        for name, values in tensors.items():
            assert file.read(name).tobytes() == values.tobytes()


def test_strange_names_are_kept(tmp_path: Path) -> None:
    assert len(open_gguf(write_parts(tmp_path, stem="ü x-00001-of-00002.gguf [1]")).paths) == 3


def test_a_later_part_points_to_the_first(tmp_path: Path) -> None:
    write_parts(tmp_path)
    message = refusal(tmp_path / "m-00003-of-00003.gguf")
    assert f"is part 3 of 3 of a split model; open the first part: '{FIRST}'" in message


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first = write_parts(tmp_path)
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    assert "part 2 of 3 is missing; put 'm-00002-of-00003.gguf'" in refusal(first, FileError)


def test_a_cut_part_is_named(tmp_path: Path) -> None:
    first = write_parts(tmp_path)
    third = tmp_path / "m-00003-of-00003.gguf"
    third.write_bytes(third.read_bytes()[:-5])
    assert "m-00003-of-00003.gguf': 5 bytes are missing" in refusal(first, TruncatedError)


def test_a_renamed_first_part(tmp_path: Path) -> None:
    path = write_parts(tmp_path).rename(tmp_path / "model.gguf")
    assert "its name must be NAME-00001-of-00003.gguf" in refusal(path)
    path = path.rename(tmp_path / "m-00001-of-00002.gguf")
    assert "its name must be NAME-00001-of-00003.gguf" in refusal(path)


def test_a_copy_in_place_of_a_part(tmp_path: Path) -> None:
    first = write_parts(tmp_path)
    (tmp_path / "m-00002-of-00003.gguf").write_bytes((tmp_path / "m-00003-of-00003.gguf").read_bytes())
    assert "m-00002-of-00003.gguf': says that it is part 3 of 3, expected part 2 of 3" in refusal(first)


def test_a_single_file_may_say_that_it_is_one(tmp_path: Path) -> None:
    for count in (0, 1):
        head = Head([(b"split.count", scalar(U16, count)), (b"split.no", scalar(U16, 0))], [Entry(b"t")])
        (tmp_path / "one.gguf").write_bytes(head.build())
        assert len(open_gguf(tmp_path / "one.gguf").paths) == 1


WRONG: dict[str, tuple[dict[str, Value], str]] = {
    "total too large": ({"p1_tensors": scalar(I32, 4)}, "have 3 tensors, expected 4"),
    "total negative": ({"p1_tensors": scalar(I32, -1)}, "'split.tensors.count' is '-1'"),
    "count of a later part": ({"p3_count": scalar(U16, 4)}, "part 3 of 4, expected part 3 of 3"),
    "count of all ones": ({"p1_count": scalar(U64, 2**64 - 1)}, "'split.count' is '18446744073709551615'"),
    "count that no name has": ({"p1_count": scalar(U64, 2**31 - 1)}, "its name must be"),
    "count a bool": ({"p1_count": scalar(BOOL, 1)}, "'split.count' is 'True'"),
    "number beyond the count": ({"p1_no": scalar(U16, 3)}, "'split.no' is 3"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_numbers(what: str, tmp_path: Path) -> None:
    changes, message = WRONG[what]
    assert message in refusal(write_parts(tmp_path, changes=changes))


def test_a_tensor_in_two_parts(tmp_path: Path) -> None:
    first = write_parts(tmp_path)
    second = tmp_path / "m-00002-of-00003.gguf"
    second.write_bytes(second.read_bytes().replace(b"t1", b"t0"))
    assert "m-00002-of-00003.gguf': has tensor 't0', which an earlier part has too" in refusal(first)


def test_no_file_stays_open_after_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    real = Path.open

    def spy(self: Path, *args: Any, **kwargs: Any) -> Any:
        opened.append(real(self, *args, **kwargs))
        return opened[-1]

    first = write_parts(tmp_path, changes={"p3_count": scalar(U16, 4)})
    monkeypatch.setattr(Path, "open", spy)
    refusal(first)
    assert len(opened) == 3
    assert all(file.closed for file in opened)
