"""The options of a generation: one frozen value, made from keywords and checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, TypedDict

from localllm.errors import OptionError
from localllm.generation.full import POLICIES

SPEC = ("auto", "off", "ngram", "draft")
"""Where guesses come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """How an answer is made. Names and defaults are llama.cpp's; raises OptionError for a value that an option can't have.

    ``max_tokens``: None is until the model ends or the context is full.
    ``temperature``: 0 is greedy. ``top_k``: keep the k likeliest (0: all). ``top_p``: keep the likeliest that together reach p (1: all).
    ``min_p``: keep what is at least min_p times as likely as the likeliest (0: all).
    ``repeat_penalty``, ``presence_penalty``, ``frequency_penalty``: against tokens among the last ``repeat_last_n``
    (-1: the whole line, 0: none); 1, 0 and 0 are off.
    ``on_full``: what happens when the context is full. "error": a prompt that does not fit is refused, an answer ends there. "stop": both
    end there. "shift": the oldest tokens behind the first ``keep`` (-1: the prompt) are dropped. "drop-oldest-turns": the oldest turns of
    a conversation are.
    ``seed``: None draws one, which the result names. ``stop``: strings that end the answer and are not part of it.
    ``ignore_eos``: never sample a token that ends generation.
    ``raw``: a string is continued as it is; otherwise it is a user's message in the model's chat template.
    ``parse_special``: in a raw prompt, texts of control tokens become those tokens.
    ``spec``: where guesses of several tokens at once come from, which change the speed and nothing else: "ngram", the text so far;
    "draft", the model that was loaded for it; "auto", whichever there are; "off".
    """

    max_tokens: int | None = None
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] = ()
    ignore_eos: bool = False
    on_full: str = "error"
    keep: int = 0
    raw: bool = False
    parse_special: bool = False
    spec: str = "auto"

    def __post_init__(self) -> None:
        whole("max_tokens", self.max_tokens, 1, optional=True)
        whole("top_k", self.top_k, 0)
        whole("repeat_last_n", self.repeat_last_n, -1)
        whole("keep", self.keep, -1)
        choice("on_full", self.on_full, POLICIES)
        whole("seed", self.seed, 0, 2**64 - 1, optional=True)
        _real("temperature", self.temperature, 0)
        _real("top_p", self.top_p, 0, 1)
        _real("min_p", self.min_p, 0, 1)
        _real("repeat_penalty", self.repeat_penalty, 0, above=True)
        _real("presence_penalty", self.presence_penalty)
        _real("frequency_penalty", self.frequency_penalty)
        for name in ("ignore_eos", "raw", "parse_special"):
            switch(name, getattr(self, name))
        choice("spec", self.spec, SPEC)
        object.__setattr__(self, "stop", _strings(self.stop))

    @property
    def stops(self) -> tuple[str, ...]:
        """``stop`` as it is kept: a tuple of strings."""
        return tuple(self.stop)


class GenerationKeywords(TypedDict, total=False):
    """The keywords of generate() and stream(), for type checkers: the fields of GenerationOptions."""

    max_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    seed: int | None
    stop: str | Sequence[str]
    ignore_eos: bool
    on_full: str
    keep: int
    raw: bool
    parse_special: bool
    spec: str


NAMES = tuple(field.name for field in fields(GenerationOptions))

_ELSEWHERE = {
    "temp": "temperature",
    "n": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "repetition_penalty": "repeat_penalty",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "repeat_last_n",
    "stop_strings": "stop",
    "stop_sequences": "stop",
    "n_ctx": "ctx",
    "num_ctx": "ctx",
    "ctx_size": "ctx",
    "n_threads": "threads",
    "num_threads": "threads",
    "n_batch": "batch",
    "device": "backend",
    "cram": "cache_ram",
    "n_keep": "keep",
    "num_keep": "keep",
}
"""What other programs call the same thing."""


def make(options: Mapping[str, Any]) -> GenerationOptions:
    """The options that these keywords give. Raises OptionError, with the likely right name, for one that does not exist."""
    refuse_unknown(options, NAMES)
    return GenerationOptions(**options)


def refuse_unknown(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises OptionError for a name that is not known, with the one that was probably meant."""
    for name in options:
        if name not in known:
            raise OptionError(f"option {name!r} does not exist{_suggestion(name, known)}")


def _suggestion(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    meant = [_ELSEWHERE[name]] if _ELSEWHERE.get(name) in known else get_close_matches(name.lower(), known, 1)
    return f"; did you mean {meant[0]!r}?" if meant else f"; there are: {', '.join(known)}"


def whole(name: str, value: Any, low: int, high: int | None = None, *, optional: bool = False) -> None:
    """Raises OptionError where the value is not a whole number from ``low`` to ``high``, or None where that is allowed."""
    if value is None and optional:
        return
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or number < low or (high is not None and number > high):
        border = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise OptionError(f"option {name!r} is {value!r}; expected a whole number {border}{' or None' if optional else ''}")


def switch(name: str, value: Any) -> None:
    """Raises OptionError where the value is neither True nor False."""
    if not isinstance(value, bool):
        raise OptionError(f"option {name!r} is {value!r}; expected True or False")


def choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Raises OptionError where the value is none of those known."""
    if value not in known:
        raise OptionError(f"option {name!r} is {value!r}; expected one of {', '.join(known)}")


def _real(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> None:
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and low <= number <= high) or (above and number == low):
        border = (
            "" if math.isinf(low) else f" {'above' if above else 'of at least'} {low}" if math.isinf(high) else f" from {low} to {high}"
        )
        raise OptionError(f"option {name!r} is {value!r}; expected a number{border}")


def _strings(value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (value,)
    for text in found:
        if not isinstance(text, str) or not text:
            raise OptionError(f"option 'stop' holds {text!r}; expected strings that are not empty")
    return found
