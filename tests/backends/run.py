"""Running a model through a backend without the layers above: file -> Program -> Session -> logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from localllm import backends
from localllm.archs import build
from localllm.backends.base import Chunk, Float, Line, Options, Session, Want
from localllm.gguf import open_gguf


@contextmanager
def session(path: Path, backend: str = "reference", options: Options | None = None) -> Iterator[Session]:
    """An open session over a file's weights; the file itself is closed again."""
    made, options = backends.get(backend), options or Options(threads=2)
    with open_gguf(path) as file:
        program = build(file)
        assert not made.missing(program, file)
        weights = made.upload(program, file, options)
    opened = made.compile(program, weights, options)
    try:
        yield opened
    finally:
        opened.close()


def feed(opened: Session, line: Line, tokens: Sequence[int], rows: Sequence[int] | None = None) -> Float:
    """Append tokens in one chunk; the logits of ``rows`` (default: all)."""
    want = Want(range(len(tokens)) if rows is None else rows)
    return opened.forward([Chunk(line, tokens, want)]).logits[0]


def logits(opened: Session, tokens: Sequence[int], last: int, batch: int = 512) -> Float:
    """The last rows' logits of a fresh line, fed ``batch`` tokens at a time."""
    line, found = opened.new_line(), []
    for start in range(0, len(tokens), batch):
        piece = tokens[start : start + batch]
        found.append(feed(opened, line, piece, [row for row in range(len(piece)) if start + row >= len(tokens) - last]))
    line.close()
    return np.concatenate(found)
