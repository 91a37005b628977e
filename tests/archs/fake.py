"""An open file without a file: the metadata and shapes of a tiny model, to build Programs from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import tiny


@dataclass(frozen=True, slots=True)
class FakeTensor:
    """A tensor without data."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FakeFile:
    """What ``archs.build`` needs of a file."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, FakeTensor] = field(default_factory=dict)
    path: Path = Path("models/fake.gguf")


def fake(
    family: str = "llama",
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, tuple[int, ...] | None] | None = None,
    **spec: Any,
) -> FakeFile:
    """A tiny model's file. ``metadata`` (without "llama.") and ``tensors`` (shapes) replace, add, or, where None, remove."""
    chosen = tiny.Spec(family=family, **spec)
    changed = {f"{family}.{key}": value for key, value in (metadata or {}).items()}
    shapes = {name: array.shape for name, array in tiny.weights(chosen).items()} | dict(tensors or {})
    return FakeFile(
        {key: value for key, value in (tiny.keys(chosen) | changed).items() if value is not None},
        {name: FakeTensor(shape) for name, shape in shapes.items() if shape is not None},
    )
