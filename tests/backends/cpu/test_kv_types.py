"""Every type that keys and values can be kept as, over whole models: near the reference, and the same bits however the work is cut."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localllm.backends.base import Float, Options
from localllm.errors import OptionError, UnsupportedError
from tests import tiny
from tests.backends import run

TOKENS = np.random.default_rng(4).integers(3, 300, 150).tolist()
PAIRS = [("f32", "f32"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "q4_0"), ("f16", "q8_0")]
NEAR = {"f32": 2e-4, "f16": 2e-3, "q8_0": 2e-2, "q4_0": 2e-2}
"""Error to the reference that keeps the same types, over the standard deviation of the logits. Codes that fall to the other side of a
half make most of it; a wrong kernel gives 1 and more."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads of 48 are padded to blocks, and of two layers one has a window."""
    return tiny.write(tmp_path_factory.mktemp("tiny") / "a.gguf", "gemma3", layers=2, period=2, window=70, head_dim=48)


@pytest.fixture(params=PAIRS, ids="-".join)
def types(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    yield request.param


def logits(path: Path, types: tuple[str, str], chunk: int, threads: int = 2, backend: str = "cpu") -> Float:
    with run.session(path, backend, Options(threads, 512, *types)) as session:
        return run.logits(session, TOKENS, len(TOKENS), chunk)


def test_near_the_reference(path: Path, types: tuple[str, str]) -> None:
    exact, kept = (logits(path, each, 512, backend="reference") for each in (("f32", "f32"), types))
    found = logits(path, types, 512)
    error = np.sqrt(np.mean(np.square(found - kept))) / exact.std()
    assert error < max(NEAR[kind] for kind in types), error
    if "q4_0" in types:
        assert error < np.sqrt(np.mean(np.square(kept - exact))) / exact.std()  # less than what the type itself costs


def test_nothing_changes_a_bit(path: Path, types: tuple[str, str]) -> None:
    whole = logits(path, types, 512)
    for chunk, threads in ((512, 1), (1, 2), (3, 1), (40, 3)):
        assert np.array_equal(logits(path, types, chunk, threads), whole), (chunk, threads)


def test_forks_and_saved_lines_go_on_alike(path: Path, types: tuple[str, str]) -> None:
    whole = logits(path, types, 512)
    with run.session(path, "cpu", Options(2, 512, *types)) as session:
        line, file, again = session.new_line(), io.BytesIO(), io.BytesIO()
        run.feed(session, line, TOKENS[::-1], [])
        line.close()
        line = session.new_line()
        run.feed(session, line, TOKENS[:100], [])
        fork = line.fork()
        assert np.array_equal(run.feed(session, line, TOKENS[100:]), whole[100:])
        fork.save(file)
        restored = session.restore(io.BytesIO(file.getvalue()))
        restored.save(again)
        assert again.getvalue() == file.getvalue()
        for each in (fork, restored):
            assert each.truncate(90) == 90
            assert np.array_equal(run.feed(session, each, TOKENS[90:]), whole[90:])
        assert session.fingerprint.startswith("-".join(types))


def test_types_that_do_not_exist(path: Path) -> None:
    for backend in ("cpu", "reference"):
        with pytest.raises(OptionError, match="kv_type_v is 'q5_0'; expected one of f32, f16, q8_0, q4_0"):
            logits(path, ("f16", "q5_0"), 512, backend=backend)


def test_heads_that_are_too_narrow(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "a.gguf", heads=8, embed=64)
    with pytest.raises(UnsupportedError, match="keys of 8 values can't be q8_0"):
        logits(path, ("q8_0", "f16"), 512)
