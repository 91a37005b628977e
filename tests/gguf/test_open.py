"""Whole files: those of the gguf package's writer read back, and what an open file offers."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

import localllm
from localllm.errors import GGUFError
from localllm.gguf import GGUFFile, Strings, Tensor, open_gguf
from tests.gguf.conftest import Save
from tests.gguf.writer import ARRAY, BOOL, I8, I16, I64, STRING, U8, U16, U32, U64, Entry, Head, array, numbers, scalar, string, text

F32 = np.arange(6 * 64, dtype=np.float32).reshape(2, 3, 64)
Q8_0 = np.arange(5 * 68, dtype=np.uint8).reshape(5, 68)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A file of the gguf package's writer with a value of every type that it can write."""
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for type, value in SCALARS.items():
        getattr(writer, f"add_{type}")(f"a.{type}", value)
    writer.add_string("a.string", "Grüße, 世界 🙂")
    writer.add_array("a.strings", STRINGS)
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.5, -1.25])
    writer.add_array("a.bools", [True, False, True])
    writer.add_custom_alignment(64)
    writer.add_tensor("blk.0.weight", F32)
    writer.add_tensor("blk.1.weight", Q8_0, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("norm", np.arange(7, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SCALARS = {
    "uint8": 255,
    "int8": -128,
    "uint16": 65535,
    "int16": -32768,
    "uint32": 2**32 - 1,
    "int32": -(2**31),
    "uint64": 2**64 - 1,
    "int64": -(2**63),
    "float32": 0.15625,
    "float64": 0.1,
    "bool": True,
}
STRINGS = ["", "a", "▁the", "x" * 300, "\n\0\0\0\0\0\0\0\0"]


def test_every_scalar_reads_back_as_itself(written: Path) -> None:
    metadata = open_gguf(written).metadata
    for type, value in SCALARS.items():
        assert metadata[f"a.{type}"] == value
        assert metadata[f"a.{type}"].__class__ is value.__class__
    assert metadata["a.string"] == "Grüße, 世界 🙂"
    assert metadata["general.architecture"] == "llama"


def test_arrays_read_back(written: Path) -> None:
    metadata = open_gguf(written).metadata
    assert list(metadata["a.strings"]) == STRINGS
    for key, dtype, values in (("ints", np.int32, [1, -2, 3]), ("floats", np.float32, [0.5, -1.25]), ("bools", np.bool_, [1, 0, 1])):
        got = metadata[f"a.{key}"]
        assert got.dtype == dtype
        assert got.tolist() == values
        assert not got.flags.writeable


def test_tensors_read_back(written: Path) -> None:
    with open_gguf(written) as file:
        assert list(file.tensors) == ["blk.0.weight", "blk.1.weight", "norm"]
        three, q8, norm = file.tensors.values()
        assert (three.shape, three.type, three.row_bytes, three.nbytes, three.rows) == ((2, 3, 64), "F32", 256, 1536, 6)
        assert (q8.shape, q8.type, q8.row_bytes, q8.nbytes, q8.rows) == ((5, 64), "Q8_0", 68, 340, 5)
        assert (norm.shape, norm.type, norm.row_bytes, norm.nbytes, norm.rows) == ((7,), "F16", 14, 14, 1)
        assert all(tensor.offset % 64 == 0 and tensor.shard == 0 for tensor in file.tensors.values())
        assert file.read("blk.0.weight").tobytes() == F32.tobytes()
        assert np.array_equal(file.read("blk.1.weight"), Q8_0)
        part = np.empty((2, 256), np.uint8)
        file.read_into("blk.0.weight", 3, part)
        assert part.tobytes() == F32.reshape(6, 64)[3:5].tobytes()


@pytest.mark.parametrize("version", [2, 3])
def test_versions(version: int, save: Save) -> None:
    file = open_gguf(save(Head([(b"k", scalar(U16, 7))], [Entry(b"t")], version=version)))
    assert (file.version, dict(file.metadata), list(file.tensors)) == (version, {"k": 7}, ["t"])


def test_values_that_the_oracle_does_not_write(save: Save) -> None:
    pairs = [
        (b"u8", numbers(U8, [0, 255])),
        (b"i8", numbers(I8, [-128, 127])),
        (b"i16", numbers(I16, [-(2**15)])),
        (b"u64", numbers(U64, [2**64 - 1])),
        (b"i64", numbers(I64, [])),
        (b"nested", array(ARRAY, [numbers(U32, [1, 2]).raw, array(STRING, [string(b"x")]).raw, array(ARRAY, []).raw])),
        (b"not utf-8", text(b"a\xffb")),
        (b"strings", array(STRING, [string(b"\xff\xfe"), string("é".encode())])),
    ]
    metadata = open_gguf(save(Head(pairs))).metadata
    for key, values in (("u8", [0, 255]), ("i8", [-128, 127]), ("i16", [-(2**15)]), ("u64", [2**64 - 1]), ("i64", [])):
        assert metadata[key].dtype == np.dtype({"u": "uint", "i": "int"}[key[0]] + key[1:])
        assert metadata[key].tolist() == values
    ints, strings, empty = metadata["nested"]
    assert (ints.tolist(), list(strings), empty) == ([1, 2], ["x"], [])
    assert metadata["not utf-8"] == "a\ufffdb"
    assert metadata["strings"].raws() == [b"\xff\xfe", "é".encode()]
    assert metadata["strings"][0] == "\ufffd\ufffd"


def test_an_empty_head_and_a_tensor_without_axes(save: Save) -> None:
    assert len(open_gguf(save(Head())).tensors) == 0
    with open_gguf(save(Head([], [Entry(b"scalar", ne=(), data=b"\1\2\3\4")]))) as file:
        assert file.tensors["scalar"] == Tensor("scalar", (), "F32", 4, 4, file.tensors["scalar"].offset, 0)
        assert file.read("scalar").tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("alignment", [1, 8, 4096])
def test_alignments(alignment: int, save: Save) -> None:
    entries = [Entry(b"a", ne=(3,), data=b"a" * 12), Entry(b"b", ne=(1,), data=b"bbbb")]
    pairs = [(b"flag", scalar(BOOL, 1)), (b"general.alignment", scalar(U32, alignment))]
    with open_gguf(save(Head(pairs, entries, alignment=alignment))) as file:
        assert file.read("a").tobytes() == b"a" * 12
        assert file.read("b").tobytes() == b"bbbb"


def test_the_surface(written: Path) -> None:
    assert localllm.open_gguf is open_gguf
    file = open_gguf(str(written))
    assert (file.path, file.paths) == (written, (written,))
    assert "keys, 3 tensors" in repr(file)
    assert isinstance(file.metadata["a.strings"], Strings)
    with pytest.raises(TypeError):
        file.metadata["x"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        del file.tensors["norm"]  # type: ignore[attr-defined]
    with pytest.raises(GGUFError, match=r"no tensor 'nor'"):
        file.read("nor")


def test_it_is_a_source_of_weights(written: Path) -> None:
    from localllm.backends.base import TensorSource

    source: TensorSource = open_gguf(written)
    assert isinstance(source, GGUFFile)
    assert source.tensors["norm"].type == "F16"
