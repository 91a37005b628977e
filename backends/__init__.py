"""Backends by name. Each is imported when it is first asked for."""

from __future__ import annotations

import importlib

from localllm.backends.base import Backend
from localllm.errors import BackendError, OptionError

NAMES = ("cpu", "reference")
"""All backends."""
AUTO = ("cpu",)
"""What "auto" tries, in this order; never the reference, which is made to be compared with and not to wait for."""


def get(name: str = "auto") -> Backend:
    """The backend of that name; "auto" is the first of AUTO that can run here.

    Raises OptionError for an unknown name, BackendError where it can't run.
    """
    if name == "auto":
        usable = next((each for each in AUTO if _make(each).available() is None), AUTO[0])
        return get(usable)
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
