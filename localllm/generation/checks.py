"""Checks of values that options may have; each raises OptionError with the name, the value and what was expected."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from localllm.errors import OptionError

SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
"""The samplers of a chain in llama.cpp's default order."""
LARGEST = 1e30
"""What is added to a logit, at most: beyond it float32 would overflow when a temperature divides."""
_ALIASES = {
    "nucleus": "top_p",
    "typical": "typ_p",
    "typical_p": "typ_p",
    "typ": "typ_p",
    "temp": "temperature",
}
"""What llama.cpp takes for the same."""


def whole(name: str, value: Any, low: int, high: int | None = None, *, optional: bool = False) -> None:
    """A whole number from ``low`` to ``high``, or None where that is allowed."""
    if value is None and optional:
        return
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or number < low or (high is not None and number > high):
        border = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise OptionError(f"option {name!r} is {value!r}; expected a whole number {border}{' or None' if optional else ''}")


def switch(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"option {name!r} is {value!r}; expected True or False")


def real(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> None:
    """A finite number from ``low`` to ``high``, without ``low`` itself if ``above``."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and low <= number <= high) or (above and number == low):
        border = (
            f" above {low}" if above else "" if math.isinf(low) else f" of at least {low}" if math.isinf(high) else f" from {low} to {high}"
        )
        raise OptionError(f"option {name!r} is {value!r}; expected a number{border}")


def strings(name: str, value: Any) -> tuple[str, ...]:
    """One string or several, none of them empty -> as a tuple."""
    found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (value,)
    for text in found:
        if not isinstance(text, str) or not text:
            raise OptionError(f"option {name!r} holds {text!r}; expected strings that are not empty")
    return found


def ids(name: str, value: Any) -> tuple[int, ...]:
    """A list of token ids -> as a tuple."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise OptionError(f"option {name!r} is {value!r:.80}; expected a list of token ids")
    for token in value:
        whole(name, token, 0)
    return tuple(map(int, value))


def biases(name: str, value: Any) -> dict[int, float]:
    """What is added to the logit of each token id; -inf takes it out."""
    if not isinstance(value, Mapping):
        raise OptionError(f"option {name!r} is {value!r:.80}; expected {{token id: what is added to its logit}}")
    for token, bias in value.items():
        whole(name, token, 0)
        if bias != -math.inf:
            real(name, bias, -LARGEST, LARGEST)
    return {int(token): float(bias) for token, bias in value.items()}


def callables(name: str, value: Any) -> tuple[Any, ...]:
    """A list of things that can be called -> as a tuple."""
    found = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    for each in found:
        if not callable(each):
            raise OptionError(f"option {name!r} holds {each!r:.80}; expected functions (tokens, logits) -> logits")
    return found


def samplers(name: str, value: Any) -> tuple[str, ...]:
    """Names of samplers in order, in a list or separated by ";" -> as a tuple of llama.cpp's names."""
    given = value.split(";") if isinstance(value, str) else value
    if not isinstance(given, Sequence):
        raise OptionError(f"option {name!r} is {value!r:.80}; expected a list of samplers")
    found = [sampler(each) for each in given]
    if None in found:
        raise OptionError(f"option {name!r} holds {given[found.index(None)]!r}, which is no sampler; there are: {', '.join(SAMPLERS)}")
    return tuple(filter(None, found))


def sampler(name: Any) -> str | None:
    """llama.cpp's name of a sampler, in whichever way it is written; None for what is none."""
    plain = name.strip().lower().replace("-", "_") if isinstance(name, str) else ""
    plain = _ALIASES.get(plain, plain)
    return plain if plain in SAMPLERS else None
