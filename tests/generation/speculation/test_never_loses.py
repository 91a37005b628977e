"""Speed under a clock that goes by what is computed: texts that repeat themselves gain, others lose next to nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from localllm.backends.base import Chunk, Outputs
from localllm.generation import sampling
from localllm.generation.options import make
from localllm.generation.speculation.chooser import Chooser
from localllm.generation.speculation.costs import size_of
from localllm.generation.speculation.draft import DraftModel
from localllm.generation.speculation.memory import Memory
from localllm.generation.speculation.ngram import Ngram
from localllm.generation.speculation.step import Speculator, Tally
from localllm.generation.speculation.vocabularies import Bridge
from tests.generation.fakes import VOCAB, FakeSession, stepper

FLAT = {1: 1.0, 2: 1.1, 4: 1.2, 8: 1.5, 16: 3.0}
STEEP = {size: float(size) for size in FLAT}
DRAFT = 0.4
"""What a pass of the draft costs, in terms of the model's."""


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(FakeSession):
    """Continues a text; ``errors``: places where it says something else, not at all surely. A pass takes the time of its size."""

    def __init__(
        self, text: Sequence[int], clock: Clock, second: float, ratios: dict[int, float], errors: frozenset[int] = frozenset()
    ) -> None:
        super().__init__()
        self._text, self._errors, self._clock, self._second, self._ratios = text, errors, clock, second, ratios
        self.rule = self._next

    def _next(self, line: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        logits = np.zeros(VOCAB, np.float32)
        n = self._place(line)
        if n < len(self._text):
            wrong = n in self._errors
            logits[(self._text[n] + wrong) % VOCAB] = 5 if wrong else 12
        return logits

    def _place(self, line: Sequence[int]) -> int:
        """Where the text goes on; a line may hold the end of it only."""
        line, n = list(line), len(line)
        if line == self._text[:n] or n < 20:
            return n
        return next((end for end in range(n, len(self._text)) if self._text[end - n : end] == line), len(self._text))

    def forward(self, batch: Sequence[Chunk]) -> Outputs:
        n = len(batch[0].tokens)
        self._clock.now += self._second * (self._ratios[size_of(n)] if n <= 16 else max(self._ratios[16], 0.1 * n))
        return super().forward(batch)


def speed(text: Sequence[int], prompt: int, clock: Clock, *, draft_errors: float | None, ngrams: bool, ratios: dict[int, float]) -> float:
    """How many times as fast as plain decoding the text behind the prompt comes."""
    rng, memory, sources = random.Random(3), Memory(), Memory()
    model, draft = Timed(text, clock, 1.0, ratios), None
    if draft_errors is not None:
        errors = frozenset(n for n in range(len(text)) if rng.random() < draft_errors)
        line = stepper(Timed(text, clock, DRAFT, FLAT, errors))
        draft = DraftModel(line, Bridge(VOCAB, VOCAB, {}), sources.costs, memory.drafts, lambda: 0.3)
    ngram = Ngram(memory.ngrams, memory.take(())) if ngrams else None
    with stepper(model) as line:
        step = Speculator(line, text[:prompt], None, chooser=Chooser(memory, ngram, draft), costs=memory.costs, tally=Tally())
        state = sampling.begin(make({"temperature": 0}), 0)
        found, state = step(state)
        began, made = clock.now, 0
        while prompt + made + 1 < len(text):
            found, state = step(state)
            made += len(found)
        return made / (clock.now - began)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    return clock


def prose(count: int, seed: int = 0) -> list[int]:
    """Tokens that nothing can be learnt from; some come often."""
    rng = np.random.default_rng(seed)
    return [int(token) for token in np.minimum(rng.zipf(1.3, count), 250)]


def edited(seed: int = 0) -> list[int]:
    """A prompt of 200 tokens, and the same again with another token here and there."""
    rng, prompt = random.Random(seed), prose(200, seed)
    return prompt + [rng.randrange(250) if rng.random() < 0.04 else token for token in prompt]


def test_an_edited_text_comes_much_faster(clock: Clock) -> None:
    assert speed(edited(), 200, clock, draft_errors=None, ngrams=True, ratios=FLAT) > 1.8


@pytest.mark.parametrize("ratios", [FLAT, STEEP])
@pytest.mark.parametrize("seed", range(3))
def test_text_without_repetition_loses_nothing(clock: Clock, ratios: dict[int, float], seed: int) -> None:
    assert speed(prose(400, seed), 50, clock, draft_errors=None, ngrams=True, ratios=ratios) > 0.97


@pytest.mark.parametrize("ngrams", [True, False])
def test_a_good_draft_gains(clock: Clock, ngrams: bool) -> None:
    assert speed(prose(400), 50, clock, draft_errors=0.07, ngrams=ngrams, ratios=FLAT) > 1.2


@pytest.mark.parametrize("ngrams", [True, False])
@pytest.mark.parametrize(("errors", "ratios"), [(0.7, FLAT), (1.0, FLAT), (0.1, STEEP)])
def test_a_draft_that_can_only_lose_is_left_alone(clock: Clock, errors: float, ratios: dict[int, float], ngrams: bool) -> None:
    assert speed(prose(450), 50, clock, draft_errors=errors, ngrams=ngrams, ratios=ratios) > 0.97


@pytest.mark.parametrize("errors", [0.5, 0.9])
def test_a_long_prompt_is_not_read_in_vain(clock: Clock, errors: float) -> None:
    assert speed(prose(3200), 3000, clock, draft_errors=errors, ngrams=False, ratios=FLAT) > 0.97


def test_a_draft_is_given_a_long_prompt_once_it_has_shown_its_worth(clock: Clock) -> None:
    assert speed(prose(400), 200, clock, draft_errors=0.05, ngrams=False, ratios=FLAT) > 1.3


def test_both_sources_are_no_worse_than_the_better_one(clock: Clock) -> None:
    alone = speed(edited(), 200, clock, draft_errors=None, ngrams=True, ratios=FLAT)
    both = speed(edited(), 200, clock, draft_errors=0.07, ngrams=True, ratios=FLAT)
    assert both > 0.93 * alone
