"""What changes logits before the chain: functions of the caller, and a bias for single tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from localllm.errors import OptionError
from localllm.generation.candidates import Candidates, Float
from localllm.generation.keywords import Processor

if TYPE_CHECKING:
    from localllm.generation.sampling import State, Tokens


@dataclass(frozen=True, slots=True)
class Bias:
    """Adds ``by`` to the logits of ``ids``. Sees the whole vocabulary."""

    ids: tuple[int, ...]
    by: tuple[float, ...]

    def __call__(self, given: Tokens, state: State) -> Tokens:
        assert isinstance(given, Candidates)
        logits = given.logits.copy()
        logits[list(self.ids)] += np.array(self.by, np.float32)
        return Candidates(logits)


@dataclass(frozen=True, slots=True)
class Process:
    """Asks a function of the caller for the logits to go on with. Sees the whole vocabulary, and all tokens of the line.

    Raises OptionError for what are no logits.
    """

    function: Processor

    def __call__(self, given: Tokens, state: State) -> Tokens:
        assert isinstance(given, Candidates)
        return Candidates(self._checked(self.function(state.recent, given.logits.copy()), len(given.logits)))

    def _checked(self, found: Any, size: int) -> Float:
        name = getattr(self.function, "__name__", repr(self.function))
        logits = np.asarray(found)
        if logits.shape != (size,) or logits.dtype.kind != "f":
            raise OptionError(f"logits processor {name!r} gave {logits.dtype} of shape {logits.shape}; expected floats of shape ({size},)")
        if not math.isfinite(logits.max()):
            raise OptionError(
                f"logits processor {name!r} gave {logits.max()} as the largest logit; expected a number for at least one token"
            )
        return logits.astype(np.float32, copy=False)
