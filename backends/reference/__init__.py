"""The oracle: NumPy float32 on dequantised weights. Slow and obvious; every other backend is tested against it."""

from __future__ import annotations

from localllm.backends.base import Backend


def backend() -> Backend:
    """The backend; its modules are imported now."""
    from localllm.backends.reference.oracle import ReferenceBackend

    return ReferenceBackend()
