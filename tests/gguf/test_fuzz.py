"""Files that nobody thought of: right ones read back, broken ones end in our errors and in nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from localllm.errors import LocalLLMError
from localllm.gguf import GGUFFile, Strings, open_gguf
from tests.gguf.strategies import Made, broken, files

PROFILE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fuzz.gguf"


def plain(value: Any) -> Any:
    """What ``strategies.values`` says that a value is read as."""
    if isinstance(value, Strings):
        return value.raws()
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


@settings(PROFILE, max_examples=80)
@given(made=files())
def test_what_was_written_is_read(made: Made, path: Path) -> None:
    path.write_bytes(made.head.build())
    with open_gguf(path) as file:
        metadata = {key: plain(value) for key, value in file.metadata.items()}
        assert metadata == made.metadata
        assert file.version == made.head.version
        assert [tensor.name.encode() for tensor in file.tensors.values()] == [entry.name for entry in made.head.tensors]
        for entry in made.head.tensors:
            tensor = file.tensors[entry.name.decode()]
            assert tensor.shape == tuple(reversed(entry.ne))
            assert file.read(tensor.name).tobytes() == entry.data


@settings(PROFILE, max_examples=250)
@given(raw=broken())
def test_the_broken_ends_in_our_errors(raw: bytes, path: Path) -> None:
    path.write_bytes(raw)
    start = time.perf_counter()
    try:
        with open_gguf(path) as file:
            use(file)
    except LocalLLMError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 1000
    assert time.perf_counter() - start < 2


def use(file: GGUFFile) -> None:
    """Touch all that a file that opened offers."""
    for value in file.metadata.values():
        plain(value)
        assert len(repr(value)) < 100_000
        if isinstance(value, Strings):
            assert len(list(value)) == len(value)
    for tensor in file.tensors.values():
        assert file.read(tensor.name).shape == (tensor.rows, tensor.row_bytes)
