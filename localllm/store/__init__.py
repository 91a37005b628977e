"""From a name to a file: paths as they are, catalogue names from the cache, fetched and checked when they are not there."""

from __future__ import annotations

from localllm.store.entries import DEFAULT, Entry, catalogue, find
from localllm.store.folders import models_folder
from localllm.store.names import cached, lookup, resolve

__all__ = ["DEFAULT", "Entry", "cached", "catalogue", "find", "lookup", "models_folder", "resolve"]
