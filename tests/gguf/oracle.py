"""Our reader held against the gguf package's, on a whole file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from localllm.gguf import GGUFFile, Strings, open_gguf

SCALARS = {"INT": int, "UINT": int, "FLOAT": float, "BOOL": bool, "STRING": str}


def compare(path: Path, theirs: gguf.GGUFReader | None = None) -> int:
    """Assert that both readers see the same metadata and tensors, bytes included; the number of things compared."""
    theirs = theirs or gguf.GGUFReader(path)
    with open_gguf(path) as ours:
        fields = {name: field for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
        assert list(ours.metadata) == list(fields), path.name
        for name, field in fields.items():
            _same_value(ours.metadata[name], field, f"{path.name}: {name}")
        assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors], path.name
        for tensor in theirs.tensors:
            _same_tensor(ours, tensor, f"{path.name}: {tensor.name}")
        return len(fields) + len(ours.tensors)


def _same_value(ours: Any, field: Any, what: str) -> None:
    if field.types[0].name != "ARRAY":
        assert type(ours) is SCALARS[field.types[0].name.rstrip("0123456789")], what
        assert ours == field.contents(), what
    elif field.types[1].name == "STRING":
        assert isinstance(ours, Strings), what
        assert ours.raws() == [field.parts[i].tobytes() for i in field.data], what
        assert list(ours) == field.contents(), what
    else:
        assert ours.dtype.name == field.types[1].name.lower(), what
        assert np.array_equal(ours, field.contents()), what


def _same_tensor(ours: GGUFFile, tensor: Any, what: str) -> None:
    mine = ours.tensors[tensor.name]
    assert mine.type == tensor.tensor_type.name, what
    assert mine.shape == tuple(tensor.shape.tolist())[::-1], what
    assert (mine.nbytes, mine.offset) == (tensor.n_bytes, tensor.data_offset), what
    raw = np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8).reshape(mine.rows, mine.row_bytes)
    assert np.array_equal(ours.read(tensor.name), raw), what
