"""Sampling as a fold over values: ``step(state, logits) -> (token, state)``.

A state is immutable and holds all that a choice depends on, so a step can be tried, thrown away and repeated. The chain
of filters has llama.cpp's members, order and defaults; what it leaves gets Gumbel noise, and the largest is the token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localllm.backends.base import Likeliest
from localllm.errors import BackendError
from localllm.generation import noise
from localllm.generation.candidates import Candidates, Float
from localllm.generation.few import FEW, Few
from localllm.generation.options import GenerationOptions
from localllm.generation.results import Logprob

COLDEST = 1e-38
"""The lowest temperature: one that float32 still tells from 0."""

Row = Float | Likeliest
"""What a backend gives of a row: all logits (V,), or as many of the likeliest tokens as the chain looks at."""
Tokens = Candidates | Few
Filter = Callable[[Tokens, "State"], Tokens]
"""Takes candidates away or changes their logits; a pure function. At least one must be left."""
Breakers = Mapping[int, tuple[tuple[int, ...], ...]]
"""DRY's sequence breakers: token -> the ids that complete one behind it, in each way that there is; () where the token holds it whole."""


@dataclass(frozen=True, slots=True)
class State:
    """All that the choice of a token depends on, but for the logits.

    ``completion``: which answer to the same prompt this is. ``count``: tokens ever in the line, prompt included.
    ``recent``: the last ``last_n`` of them (-1: all), for penalties. ``likeliest``: how many of the likeliest tokens the chain looks at;
    0: at all logits. ``mu``: what mirostat has learnt. ``logprobs``: how many of the likeliest tokens are noted with each that is drawn
    (None: nothing is); ``scores``: what was noted since ``forgetful``.
    """

    chain: tuple[Filter, ...]
    seed: int
    completion: int = 0
    count: int = 0
    recent: tuple[int, ...] = ()
    last_n: int = 0
    likeliest: int = 0
    mu: float | None = None
    logprobs: int | None = None
    scores: tuple[Logprob, ...] = ()

    def after(self, tokens: Sequence[int]) -> State:
        """The state once these tokens are in the line too."""
        # Not dataclasses.replace, which takes ten times as long, for every token.
        recent = self._window(tokens) if self.last_n else ()
        count = self.count + len(tokens)
        n = self.likeliest
        return State(self.chain, self.seed, self.completion, count, recent, self.last_n, n, self.mu, self.logprobs, self.scores)

    def forgetful(self) -> State:
        """The same without scores: for whoever has read them."""
        return replace(self, scores=()) if self.scores else self

    def _window(self, tokens: Sequence[int]) -> tuple[int, ...]:
        known = (*self.recent, *tokens)
        return known if self.last_n < 0 else known[-self.last_n :]


def begin(options: GenerationOptions, seed: int, *, ends: Sequence[int] = (), breakers: Breakers | None = None) -> State:
    """The state of an empty line. ``ends``: the ids that end generation, never sampled under ``ignore_eos``; ``breakers``: those of DRY."""
    from localllm.generation.chain import chain_of, memory_of

    chain = chain_of(options, banned=ends if options.ignore_eos else (), breakers=breakers)
    likeliest = _looked_at(chain) if options.logprobs is None else 0
    mu = 2.0 * options.mirostat_tau if options.mirostat and not isinstance(chain[-1], Greedy) else None
    return State(chain, seed, options.completion, 0, (), memory_of(options), likeliest, mu, options.logprobs)


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
    after = state.after((token,))
    return token, after if state.mu is None and state.logprobs is None else _noted(after, token, left, row)


def _tokens(row: Row) -> Tokens:
    place = 0 if isinstance(row, Likeliest) else int(row.argmax())  # of the first that is no number, if there is one
    logits = row.logits if isinstance(row, Likeliest) else row
    if not math.isfinite(logits[place]):
        raise BackendError("the model gave logits that are not finite numbers; the file may be damaged, or its type overflows here")
    return Few(row.logits, row.ids) if isinstance(row, Likeliest) else Candidates(row, place=place)


def _noted(after: State, token: int, left: Tokens, row: Row) -> State:
    """The state with what is learnt and told of a token that was drawn from those that were left of a row."""
    if after.mu is not None:
        from localllm.generation.filters.mirostat import Mirostat

        last = after.chain[-1]
        assert isinstance(last, Mirostat)
        after = replace(after, mu=last.learnt(after.mu, left, token))
    if after.logprobs is not None:
        from localllm.generation.logprobs import logprob

        assert not isinstance(row, Likeliest)
        after = replace(after, scores=(*after.scores, logprob(row, token, after.logprobs)))
    return after


@dataclass(frozen=True, slots=True)
class Ban:
    """Takes tokens out. Before any are taken away, so it sees the whole vocabulary, or enough of the likeliest."""

    ids: tuple[int, ...]

    def __call__(self, given: Tokens, state: State) -> Tokens:
        if isinstance(given, Few):
            return given.without(self.ids)
        logits = given.logits.copy()
        logits[list(self.ids)] = -np.inf
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
    """Keeps the likeliest whose probabilities reach p together (Holtzman et al. 2020), at least ``keep``."""

    p: float
    keep: int = 0

    def __call__(self, given: Tokens, state: State) -> Tokens:
        return _at_least(self.keep, given.reaching(self.p), given)


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps what is at least ``p`` times as likely as the likeliest (Nguyen et al. 2024), at least ``keep``."""

    p: float
    keep: int = 0

    def __call__(self, given: Tokens, state: State) -> Tokens:
        return _at_least(self.keep, given.near(-math.log(self.p)), given)


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the logits: below 1 sharpens, above 1 flattens."""

    t: float

    def __call__(self, given: Tokens, state: State) -> Tokens:
        return given.over(max(self.t, COLDEST))


def _at_least(keep: int, left: Tokens, given: Tokens) -> Tokens:
    return given.best(keep) if len(left.logits) < keep else left
