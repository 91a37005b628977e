"""What a model has learnt about guessing: it outlives an answer, and what its passes cost outlives the process."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from localllm.backends.base import TensorInfo
from localllm.folders import cache_folder
from localllm.generation.speculation import draft, ngram
from localllm.generation.speculation.automaton import SuffixAutomaton
from localllm.generation.speculation.costs import SIZES, Costs
from localllm.generation.speculation.venture import Venture

_VERSION = 1
_WORTH_WRITING = 16
"""Passes after which the file is written anew."""


class Memory:
    """One for each loaded model. ``file``: where costs are kept; one that can't be read or written is done without."""

    def __init__(self, file: Path | None = None) -> None:
        self.costs = Costs()
        self.ngrams, self.drafts = ngram.acceptance(), draft.acceptance()
        self.venture = Venture()
        self._automata: list[SuffixAutomaton] = []
        self._file, self._written = file, 0
        if file is not None:
            with suppress(OSError, ValueError, RecursionError):  # what json raises is a ValueError, but for brackets in brackets
                self.costs.put(*_read(json.loads(file.read_text(encoding="utf-8"))))

    def anew(self) -> Memory:
        """One that has learnt nothing from texts yet; what passes cost is known to both, and kept by this one."""
        other = Memory()
        other.costs = self.costs
        return other

    def take(self, text: Sequence[int]) -> SuffixAutomaton:
        """An automaton of a beginning of the text, that of the last answer if it is one; it belongs to the caller until it is kept."""
        with suppress(IndexError):
            last = self._automata.pop()
            if last.tokens == list(text[: len(last.tokens)]):
                return last
        return SuffixAutomaton()

    def keep(self, automaton: SuffixAutomaton) -> None:
        """Keep an automaton for the next turn."""
        self._automata[:] = [automaton]

    def save(self) -> None:
        """Write the costs down, where enough was learnt since the last time."""
        if self._file is not None and self.costs.passes >= self._written + _WORTH_WRITING:
            self._written = self.costs.passes
            with suppress(OSError):
                _write(self._file, self.costs)


def place(backend: str, threads: int, tensors: Mapping[str, TensorInfo]) -> Path:
    """The file for a model on this machine: what its passes cost depends on its tensors and not on what is in them."""
    import platform

    shapes = sorted((tensor.name, tensor.type, *tensor.shape) for tensor in tensors.values())
    key = json.dumps([backend, threads, platform.node(), shapes])
    return cache_folder() / "speed" / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.json"


def _write(file: Path, costs: Costs) -> None:
    ratios = {str(size): round(ratio, 4) for size, ratio in costs.ratios.items()}
    text = json.dumps({"version": _VERSION, "seconds": costs.level, "ratios": ratios, "bulk": costs.bulk})
    file.parent.mkdir(parents=True, exist_ok=True)
    # In one step, so that nobody ever reads a half, and two processes never write into each other's.
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".part")
    try:
        with open(descriptor, "w", encoding="utf-8") as part:
            part.write(text)
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _read(found: Any) -> tuple[float, dict[int, float], float]:
    """What a file says. Raises ValueError where it is not what ``_write`` writes."""
    if not isinstance(found, dict) or found.get("version") != _VERSION or not isinstance(found.get("ratios"), dict):
        raise ValueError
    level, ratios, bulk = found.get("seconds"), {size: found["ratios"].get(str(size)) for size in SIZES}, found.get("bulk")
    numbers = (level, bulk, *ratios.values())
    if not all(isinstance(number, float) and 0 < number < 1e6 for number in numbers):
        raise ValueError
    return level, ratios, bulk  # type: ignore[return-value]
