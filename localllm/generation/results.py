"""What a generation gives: events while it runs, and a result at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Finish = Literal["stop", "length", "context", "interrupted"]
"""Why an answer ended: "stop" by a token that ends generation or a stop string, "length" by max_tokens, "context" because
the context is full, "interrupted" by whoever was listening."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens read and made. ``completion_tokens`` counts the token that ended generation too."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Both together: what the context held."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of computation; the time that a listener takes between events is not in them.

    ``prompt_seconds`` runs until the first token is known; ``completion_seconds`` covers the tokens after it.
    """

    prompt_seconds: float
    completion_seconds: float
    prompt_tokens: int
    completion_tokens: int

    @property
    def prompt_per_second(self) -> float:
        """Prompt tokens a second; 0 where nothing was measured."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds > 0 else 0.0

    @property
    def completion_per_second(self) -> float:
        """Tokens a second after the first one; 0 where there was only one."""
        return (self.completion_tokens - 1) / self.completion_seconds if self.completion_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Logprob:
    """What the model thought of a token: ``logprob``, the natural logarithm of its probability before any sampler, and ``top``, the
    likeliest tokens with theirs, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """An answer. ``str(result)`` is its text.

    ``tokens``: every id that was sampled, the one that ended generation and those of a stop string included.
    ``stop``: the stop string that was found, or the stop token, else None. ``seed`` and ``completion``: those that were used; with both
    the answer can be made again. ``logprobs``: one for each of the tokens, where they were asked for.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: Finish
    usage: Usage
    timings: Timings
    seed: int
    stop: str | int | None = None
    completion: int = 0
    logprobs: tuple[Logprob, ...] | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a stream. The texts of all events together are the text of the result.

    ``text``: what became certain with this token; may be empty, since half a character and the beginning of a stop string
    are held back. ``token``: its id, with its ``logprob`` where that was asked for. The last event has no token; it carries what was held
    back and the ``result``. ``completion``: which answer to the prompt this is a step of.
    """

    text: str
    token: int | None = None
    result: Result | None = None
    logprob: Logprob | None = None
    completion: int = 0
