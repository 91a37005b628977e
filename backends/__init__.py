"""Backends by name. Each is imported when it is first asked for."""

from __future__ import annotations

import importlib

from localllm.backends.base import Backend
from localllm.errors import BackendError, OptionError

NAMES = ("cpu", "reference")
"""In the order that "auto" tries them."""


def get(name: str = "auto") -> Backend:
    """The backend of that name; "auto" is the first that can run here.

    Raises OptionError for an unknown name, BackendError where it can't run.
    """
    if name == "auto":
        return next(backend for backend in map(_make, NAMES) if backend.available() is None)
    if name not in NAMES:
        raise OptionError(f"backend {name!r} is not known; there are: auto, {', '.join(NAMES)}")
    backend = _make(name)
    reason = backend.available()
    if reason is not None:
        raise BackendError(f"backend {name!r} can't run on this machine: {reason}")
    return backend


def _make(name: str) -> Backend:
    backend: Backend = importlib.import_module(f"localllm.backends.{name}").backend()
    return backend
