"""What a line holds before its prompt is fed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localllm.backends.base import Line


@dataclass(frozen=True, slots=True)
class Past:
    """``line`` holds ``tokens``. ``note``: where they come from ("memory", "disk"), or why there are none."""

    line: Line
    tokens: Sequence[int] = ()
    note: str = ""
