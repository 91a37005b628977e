"""Where files are kept between runs: models below it and compiled kernels."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder of everything that can be fetched or made again.

    ``LOCALLLM_CACHE`` if set, else ``localllm`` in the user's cache: ``XDG_CACHE_HOME``, ~/Library/Caches on macOS,
    %LOCALAPPDATA% on Windows, ~/.cache elsewhere. It need not exist.
    """
    own = os.environ.get("LOCALLLM_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and os.path.isabs(xdg):
        return Path(xdg) / "localllm"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "localllm"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "localllm"
    return Path.home() / ".cache" / "localllm"
