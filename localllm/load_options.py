"""The options of loading a model: one frozen value, made from keywords and checked once."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TypedDict

from localllm.backends.base import KV_TYPES, Progress
from localllm.generation import options as generation

MAX_CONTEXT, MAX_BATCH = 2**30, 2**16


class LoadKeywords(TypedDict, total=False):
    """The keywords of load(), for type checkers."""

    backend: str
    threads: int | None
    ctx: int | None
    batch: int
    progress: Progress | None
    force: bool
    cache_ram: int | None
    cache_disk: int | None
    cache_type_k: str | None
    cache_type_v: str | None
    draft: str | os.PathLike[str] | None


class Keywords(LoadKeywords, generation.GenerationKeywords, total=False):
    """The keywords of localllm.generate(): of load() and of Model.generate()."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a model is loaded; see ``load``. Raises OptionError for a value that an option can't have."""

    backend: str = "auto"
    threads: int | None = None
    ctx: int | None = None
    batch: int = 512
    progress: Progress | None = None
    force: bool = False
    cache_ram: int | None = None
    cache_disk: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    draft: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        generation.whole("threads", self.threads, 1, optional=True)
        generation.whole("ctx", self.ctx, 1, MAX_CONTEXT, optional=True)
        generation.whole("batch", self.batch, 1, MAX_BATCH)
        generation.switch("force", self.force)
        generation.whole("cache_ram", self.cache_ram, 0, optional=True)
        generation.whole("cache_disk", self.cache_disk, 0, optional=True)
        for name in ("cache_type_k", "cache_type_v"):
            if getattr(self, name) is not None:
                generation.choice(name, getattr(self, name), KV_TYPES)


LOAD_NAMES = tuple(field.name for field in fields(LoadOptions))
