"""The oracle: NumPy float32 on dequantised weights. Slow and obvious; every other backend is tested against it."""

from __future__ import annotations

import importlib

from localllm.backends.base import Backend


def backend() -> Backend:
    """The backend; its modules are imported now."""
    made: Backend = importlib.import_module("localllm.backends.reference.oracle").ReferenceBackend()
    return made
