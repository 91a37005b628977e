"""Sampling as a fold over values: ``step(state, logits) -> (token, state)``.

A state is immutable and holds all that a choice depends on, so a step can be tried, thrown away and repeated. The chain
of filters has llama.cpp's members, order and defaults; what it leaves gets Gumbel noise, and the largest is the token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from localllm.errors import BackendError
from localllm.generation import noise
from localllm.generation.candidates import Candidates, Float
from localllm.generation.options import GenerationOptions

_HEADS = (256, 4096)
_TINY = 1e-6
"""A temperature that may make logits overflow; to have NumPy ignore that takes longer than the division."""

Filter = Callable[[Candidates, "State"], Candidates]
"""Takes candidates away or changes their logits; a pure function. At least one must be left."""


@dataclass(frozen=True, slots=True)
class State:
    """All that the choice of a token depends on, but for the logits.

    ``completion``: which answer to the same prompt this is. ``count``: tokens ever in the line, prompt included.
    ``recent``: the last ``last_n`` of them (-1: all), for penalties.
    """

    chain: tuple[Filter, ...]
    seed: int
    completion: int = 0
    count: int = 0
    recent: tuple[int, ...] = ()
    last_n: int = 0

    def after(self, tokens: Sequence[int]) -> State:
        """The state once these tokens are in the line too."""
        # Not dataclasses.replace, which takes ten times as long, for every token.
        return State(self.chain, self.seed, self.completion, self.count + len(tokens), self._window(tokens), self.last_n)

    def _window(self, tokens: Sequence[int]) -> tuple[int, ...]:
        if self.last_n == 0:
            return ()
        known = (*self.recent, *tokens)
        return known if self.last_n < 0 else known[-self.last_n :]


def begin(options: GenerationOptions, seed: int, *, ends: Sequence[int] = (), completion: int = 0) -> State:
    """The state of an empty line. ``ends``: the ids that end generation, never sampled under ``ignore_eos``."""
    penalised = options.repeat_penalty != 1 or options.presence_penalty != 0 or options.frequency_penalty != 0
    chain = chain_of(options, banned=ends if options.ignore_eos else ())
    return State(chain, seed, completion, last_n=options.repeat_last_n if penalised else 0)


def step(state: State, logits: Float) -> tuple[int, State]:
    """The next token after ``logits`` (V,), and the state that includes it.

    Raises BackendError for logits that are not numbers.
    """
    if not math.isfinite(np.maximum.reduce(logits)):
        raise BackendError("the model gave logits that are not finite numbers; the file may be damaged, or its type overflows here")
    left = Candidates(logits)
    for one in state.chain:
        left = one(left, state)
    token = _draw(left, noise.key(state.seed, state.completion, state.count))
    return token, state.after((token,))


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
    """Takes tokens out. First of all, so it sees the whole vocabulary."""

    ids: tuple[int, ...]

    def __call__(self, given: Candidates, state: State) -> Candidates:
        logits = given.logits.copy()
        logits[list(self.ids)] = -np.inf
        return given._replace(logits=logits)


@dataclass(frozen=True, slots=True)
class Penalties:
    """Against tokens of the recent past: ``repeat`` divides logits (Keskar et al. 2019), ``presence`` and ``frequency``
    subtract, once and per occurrence. Before anything is taken away, so it sees the whole vocabulary."""

    repeat: float
    presence: float
    frequency: float

    def __call__(self, given: Candidates, state: State) -> Candidates:
        if not state.recent:
            return given
        ids, counts = np.unique(np.array(state.recent), return_counts=True)
        logits = given.logits.copy()
        hit = logits[ids]
        hit = np.where(hit > 0, hit / np.float32(self.repeat), hit * np.float32(self.repeat))
        logits[ids] = hit - (self.frequency * counts + self.presence).astype(np.float32)
        return given._replace(logits=logits)


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keeps the likeliest alone, the lowest id on ties."""

    def __call__(self, given: Candidates, state: State) -> Candidates:
        return given.take(np.array([given.logits.argmax()]), ranked=True)


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the k likeliest."""

    k: int

    def __call__(self, given: Candidates, state: State) -> Candidates:
        return given.best(self.k)


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the likeliest whose probabilities reach p together (Holtzman et al. 2020)."""

    p: float

    def __call__(self, given: Candidates, state: State) -> Candidates:
        top = given.top()
        if given.ranked:
            reached = np.add.accumulate(_weights(given.logits, top))
            goal = self.p * reached[-1]
            return given.first(_count(reached, goal))
        goal = self.p * _weights(given.logits, top).sum()
        for size in (*_HEADS, len(given.logits)):
            head = given.best(min(size, len(given.logits)))
            reached = np.add.accumulate(_weights(head.logits, top))
            if reached[-1] >= goal or len(head.logits) == len(given.logits):
                break
        return head.first(_count(reached, goal))


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps what is at least ``p`` times as likely as the likeliest (Nguyen et al. 2024)."""

    p: float

    def __call__(self, given: Candidates, state: State) -> Candidates:
        near = given.logits >= given.top() + np.float32(math.log(self.p))
        return given.first(int(np.count_nonzero(near))) if given.ranked else given.take(near.nonzero()[0])


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the logits: below 1 sharpens, above 1 flattens."""

    t: float

    def __call__(self, given: Candidates, state: State) -> Candidates:
        # From the largest down, so that a temperature near 0 overflows to -inf and never to inf.
        below = given.logits - given.top()
        if self.t > _TINY:
            return given._replace(logits=below / np.float32(self.t))
        with np.errstate(over="ignore"):
            return given._replace(logits=below / np.float32(self.t))


def _weights(logits: Float, top: np.float32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] = np.exp(logits.astype(np.float64) - float(top))
    return weights


def _count(reached: np.ndarray[tuple[int], np.dtype[np.float64]], goal: float) -> int:
    return min(int(reached.searchsorted(goal)) + 1, len(reached))


def _draw(left: Candidates, place: int) -> int:
    if len(left.logits) == 1:
        return int(left.names()[0])
    ids = left.names()
    # A shift of all log-probabilities alike changes no order, so they are not normalised.
    noisy = left.logits + noise.gumbel(place, ids)
    return int(np.minimum.reduce(ids[noisy == np.maximum.reduce(noisy)]))
