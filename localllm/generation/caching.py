"""The caches of a session, as they are when a model is loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

from localllm import backends
from localllm.backends.base import Session
from localllm.generation.budget import share_of_free
from localllm.generation.prefix import PrefixCache
from localllm.generation.saving import SavedLines


def make(session: Session, backend: str, weights: bytes | None, *, ram: int | None, disk: int | None) -> PrefixCache | None:
    """The cache of a session; None where there is to be none.

    ``weights``: the digest of the model's file, where lines are kept on disk. ``ram``, ``disk``: MiB, None for what is sensible here.
    """
    if ram == 0 and disk == 0:
        return None
    saved = None if weights is None else _saved(session, backend, weights, disk)
    return PrefixCache(session.new_line, share_of_free if ram is None else lambda _: ram << 20, saved)


def _saved(session: Session, backend: str, weights: bytes, disk: int | None) -> SavedLines:
    from localllm.store.folders import disk_budget, kv_folder
    from localllm.store.kv import LineFolder

    def folder() -> LineFolder:
        budget = disk_budget() if disk is None else disk << 20
        return LineFolder(kv_folder(), _key(weights, session.fingerprint, backend), budget)

    return SavedLines(folder, session.restore)


def _key(weights: bytes, fingerprint: str, backend: str) -> bytes:
    """All that decides the bits of a line but for its tokens: the weights, what the session says of itself, and our code."""
    total = hashlib.blake2b(weights + fingerprint.encode() + b"\0", digest_size=32)
    total.update(_code(backend))
    return total.digest()


def _code(backend: str) -> bytes:
    """Digest of the sources that compute. A session's fingerprint names its kernels; what feeds them counts as well."""
    from numpy import __version__ as numpy

    root = Path(backends.__file__).parent
    package = Path(__file__).parent.parent
    total = hashlib.blake2b(numpy.encode(), digest_size=32)
    for folder in (root, root / backend, root.parent / "quant", package / "model", package / "archs"):
        for source in sorted(folder.glob("*.py")):
            total.update(source.name.encode() + b"\0" + source.read_bytes())
    return total.digest()
