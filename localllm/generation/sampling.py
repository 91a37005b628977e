"""Sampling as a fold over values: ``step(state, logits) -> (token, state)``.

A state is immutable and holds all that a choice depends on, so a step can be tried, thrown away and repeated. The chain
of filters has llama.cpp's members, order and defaults; what it leaves gets Gumbel noise, and the largest is the token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from localllm.backends.base import Likeliest
from localllm.errors import BackendError
from localllm.generation import noise
from localllm.generation.candidates import Candidates, Float
from localllm.generation.few import FEW, Few
from localllm.generation.options import GenerationOptions

_COLDEST = 1e-38
"""The lowest temperature: one that float32 still tells from 0."""

Row = Float | Likeliest
"""What a backend gives of a row: all logits (V,), or as many of the likeliest tokens as the chain looks at."""
Tokens = Candidates | Few
Filter = Callable[[Tokens, "State"], Tokens]
"""Takes candidates away or changes their logits; a pure function. At least one must be left."""


@dataclass(frozen=True, slots=True)
class State:
    """All that the choice of a token depends on, but for the logits.

    ``completion``: which answer to the same prompt this is. ``count``: tokens ever in the line, prompt included.
    ``recent``: the last ``last_n`` of them (-1: all), for penalties. ``likeliest``: how many of the likeliest tokens the chain looks at;
    0: at all logits.
    """

    chain: tuple[Filter, ...]
    seed: int
    completion: int = 0
    count: int = 0
    recent: tuple[int, ...] = ()
    last_n: int = 0
    likeliest: int = 0

    def after(self, tokens: Sequence[int]) -> State:
        """The state once these tokens are in the line too."""
        # Not dataclasses.replace, which takes ten times as long, for every token.
        recent = self._window(tokens) if self.last_n else ()
        return State(self.chain, self.seed, self.completion, self.count + len(tokens), recent, self.last_n, self.likeliest)

    def _window(self, tokens: Sequence[int]) -> tuple[int, ...]:
        known = (*self.recent, *tokens)
        return known if self.last_n < 0 else known[-self.last_n :]


def begin(options: GenerationOptions, seed: int, *, ends: Sequence[int] = (), completion: int = 0) -> State:
    """The state of an empty line. ``ends``: the ids that end generation, never sampled under ``ignore_eos``."""
    penalised = options.repeat_penalty != 1 or options.presence_penalty != 0 or options.frequency_penalty != 0
    chain = chain_of(options, banned=ends if options.ignore_eos else ())
    last_n = options.repeat_last_n if penalised else 0
    return State(chain, seed, completion, last_n=last_n, likeliest=_looked_at(chain))


def _looked_at(chain: Sequence[Filter]) -> int:
    """How many of the likeliest tokens are enough for a chain; 0: it needs all."""
    first = chain[0] if chain else None
    if isinstance(first, Ban):
        rest = _looked_at(chain[1:])
        n = rest + len(first.ids) if rest else 0
    else:
        n = 1 if isinstance(first, Greedy) else first.k if isinstance(first, TopK) else 0
    return n if n <= FEW else 0


def step(state: State, row: Row) -> tuple[int, State]:
    """The next token after a row of logits, and the state that includes it. The token is the same whether the row has all logits or
    ``state.likeliest`` of them.

    Raises BackendError for logits that are not numbers.
    """
    left = _tokens(row)
    for one in state.chain:
        left = one(left, state)
    token = left.draw(noise.key(state.seed, state.completion, state.count))
    return token, state.after((token,))


def _tokens(row: Row) -> Tokens:
    place = 0 if isinstance(row, Likeliest) else int(row.argmax())  # of the first that is no number, if there is one
    logits = row.logits if isinstance(row, Likeliest) else row
    if not math.isfinite(logits[place]):
        raise BackendError("the model gave logits that are not finite numbers; the file may be damaged, or its type overflows here")
    return Few(row.logits, row.ids) if isinstance(row, Likeliest) else Candidates(row, place=place)


def chain_of(options: GenerationOptions, *, banned: Sequence[int] = ()) -> tuple[Filter, ...]:
    """The filters that these options ask for, in llama.cpp's order; those that would change nothing are left out."""
    chain: list[Filter] = []
    if banned:
        chain.append(Ban(tuple(sorted(banned))))
    if options.repeat_penalty != 1 or options.presence_penalty != 0 or options.frequency_penalty != 0:
        chain.append(Penalties(options.repeat_penalty, options.presence_penalty, options.frequency_penalty))
    if options.temperature == 0:
        return (*chain, Greedy())
    if options.top_k:
        chain.append(TopK(options.top_k))
    if options.top_p < 1:
        chain.append(TopP(options.top_p))
    if options.min_p > 0:
        chain.append(MinP(options.min_p))
    if options.temperature != 1:
        chain.append(Temperature(options.temperature))
    return tuple(chain)


@dataclass(frozen=True, slots=True)
class Ban:
    """Takes tokens out. First of all, so it sees the whole vocabulary, or enough of the likeliest."""

    ids: tuple[int, ...]

    def __call__(self, given: Tokens, state: State) -> Tokens:
        if isinstance(given, Few):
            return given.without(self.ids)
        logits = given.logits.copy()
        logits[list(self.ids)] = -np.inf
        return Candidates(logits)


@dataclass(frozen=True, slots=True)
class Penalties:
    """Against tokens of the recent past: ``repeat`` divides logits (Keskar et al. 2019), ``presence`` and ``frequency``
    subtract, once and per occurrence. Before anything is taken away, so it sees the whole vocabulary."""

    repeat: float
    presence: float
    frequency: float

    def __call__(self, given: Tokens, state: State) -> Tokens:
        assert isinstance(given, Candidates)
        if not state.recent:
            return given
        ids, counts = np.unique(np.array(state.recent), return_counts=True)
        logits = given.logits.copy()
        hit = logits[ids]
        hit = np.where(hit > 0, hit / np.float32(self.repeat), hit * np.float32(self.repeat))
        logits[ids] = hit - (self.frequency * counts + self.presence).astype(np.float32)
        return Candidates(logits)


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keeps the likeliest alone, the lowest id on ties."""

    def __call__(self, given: Tokens, state: State) -> Tokens:
        return given.likeliest()


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the k likeliest."""

    k: int

    def __call__(self, given: Tokens, state: State) -> Tokens:
        return given.best(self.k)


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the likeliest whose probabilities reach p together (Holtzman et al. 2020)."""

    p: float

    def __call__(self, given: Tokens, state: State) -> Tokens:
        return given.reaching(self.p)


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps what is at least ``p`` times as likely as the likeliest (Nguyen et al. 2024)."""

    p: float

    def __call__(self, given: Tokens, state: State) -> Tokens:
        return given.near(-math.log(self.p))


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the logits: below 1 sharpens, above 1 flattens."""

    t: float

    def __call__(self, given: Tokens, state: State) -> Tokens:
        return given.over(max(self.t, _COLDEST))
