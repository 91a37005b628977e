"""Sources and entries that need no network."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from localllm.errors import DownloadError
from localllm.store.entries import Entry
from localllm.store.sources import Seen, Source


@dataclass
class Memory:
    """Gives ``contents``; ``broken``: the part that fails; ``fetched``: the parts asked for, in order."""

    contents: list[bytes]
    kind: str = "memory"
    broken: int | None = None
    fetched: list[int] = field(default_factory=list)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"part-{i}" for i in range(len(self.contents)))

    def fetch(self, part: int, folder: Path, seen: Seen) -> Generator[bytes, None, None]:
        self.fetched.append(part)
        content = self.contents[part]
        yield content[:1]
        seen(1)
        if part == self.broken:
            raise DownloadError(f"part-{part} broke off")
        yield content[1:]


def entry_of(content: bytes, *sources: Source, size: int | None = None) -> Entry:
    """An entry whose file is ``content``."""
    digest = hashlib.sha256(content).hexdigest()
    return Entry("fake:1m", "fake.gguf", digest, len(content) if size is None else size, "Fake", "MIT", "about:blank", sources)
