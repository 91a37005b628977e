"""How a loaded model guesses ahead: which sources an answer has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from localllm.backends.base import Progress
from localllm.errors import OptionError
from localllm.generation.options import GenerationOptions
from localllm.generation.results import Speculation
from localllm.generation.speculation.chooser import Chooser
from localllm.generation.speculation.draft import DraftModel
from localllm.generation.speculation.memory import Memory
from localllm.generation.speculation.ngram import Ngram
from localllm.generation.speculation.step import Speculator, Tally
from localllm.generation.speculation.vocabularies import Bridge
from localllm.generation.stepper import Step, Stepper, plain

Provider = Callable[[Stepper, Sequence[int], Progress | None], Step]


@dataclass(frozen=True, slots=True)
class Draft:
    """A smaller model. ``line``: a fresh line of it; ``share``: its size, in terms of the model that it guesses for."""

    line: Callable[[], Stepper]
    bridge: Bridge
    memory: Memory
    share: float


class Setup:
    """``exact``: whether the backend computes the same bits in whatever batch; where it does not, guessing could change a text."""

    def __init__(self, memory: Memory, *, exact: bool, draft: Draft | None = None) -> None:
        self.memory, self.draft = memory, draft
        self._exact = exact

    def anew(self) -> Setup:
        """The same sources, with nothing learnt from texts yet."""
        return Setup(self.memory.anew(), exact=self._exact, draft=self.draft)

    def provider(self, options: GenerationOptions, ends: Collection[int]) -> tuple[Provider, Callable[[], Speculation | None]]:
        """What makes the tokens of an answer, and what tells how guessing went. Raises OptionError for guesses that can't be had."""
        self._require(options.spec)
        if options.spec == "off" or not self._exact:
            return plain, lambda: None
        tally = Tally()

        def provider(stepper: Stepper, prompt: Sequence[int], progress: Progress | None) -> Step:
            ngram = self._ngram(stepper, prompt) if options.spec != "draft" else None
            draft = self._open(self.draft, stepper) if self.draft and options.spec != "ngram" else None
            stepper.on_close(self.memory.save)
            chooser = Chooser(self.memory, ngram, draft)
            most = options.max_tokens
            return Speculator(stepper, prompt, progress, chooser=chooser, costs=self.memory.costs, tally=tally, ends=ends, most=most)

        return provider, tally.result

    def _require(self, spec: str) -> None:
        if spec == "draft" and self.draft is None:
            raise OptionError("option 'spec' is 'draft', but the model was loaded without one; give load a draft, or take 'auto'")
        if spec not in ("auto", "off") and not self._exact:
            raise OptionError(
                f"option 'spec' is {spec!r}, but this backend's numbers depend on how many tokens it computes at once, "
                "so that guessing could change the text; take 'off', or load the model with backend 'cpu'"
            )

    def _ngram(self, stepper: Stepper, prompt: Sequence[int]) -> Ngram:
        ngram = Ngram(self.memory.ngrams, self.memory.take(prompt))
        stepper.on_close(lambda: self.memory.keep(ngram.automaton) if ngram.whole else None)
        return ngram

    def _open(self, draft: Draft, stepper: Stepper) -> DraftModel:
        line = draft.line()
        stepper.on_close(line.close)
        stepper.on_close(draft.memory.save)
        return DraftModel(line, draft.bridge, draft.memory.costs, self.memory.drafts, lambda: draft.share * self.memory.costs.seconds(1))
