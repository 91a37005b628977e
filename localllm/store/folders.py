"""Where models are kept."""

from __future__ import annotations

from pathlib import Path

from localllm.folders import cache_folder


def models_folder() -> Path:
    """The folder of fetched models, each under its own file name."""
    return cache_folder() / "models"
