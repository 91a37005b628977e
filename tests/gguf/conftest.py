"""What the tests of the reader share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gguf.writer import Head

Save = Callable[[Head | bytes], Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """A function that writes a file to be, or bytes, into a file and gives its path."""

    def write(content: Head | bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(content if isinstance(content, bytes) else content.build())
        return path

    return write
