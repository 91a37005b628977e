"""Where models and computed lines are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from localllm.folders import cache_folder


def models_folder() -> Path:
    """The folder of fetched models, each under its own file name."""
    return cache_folder() / "models"


def kv_folder() -> Path:
    """The folder of computed lines: a folder for each model and way of computing."""
    return cache_folder() / "kv"


def disk_budget() -> int:
    """Bytes that computed lines may take on disk when nobody says: a tenth of what is free, at most 8 GB."""
    folder = cache_folder()
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    try:
        return min(8 * 10**9, shutil.disk_usage(there).free // 10)
    except OSError:
        return 0
