"""The provider of tokens that guesses ahead and verifies.

The model is sampled at each guessed place with the very states that plain decoding would have there, and guesses count as long as they are
what it chose; the first choice that differs is the step's last token. So the text is that of plain decoding, whatever is guessed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

from localllm.backends.base import Progress
from localllm.generation import sampling
from localllm.generation.results import Speculation
from localllm.generation.speculation.chooser import Chooser
from localllm.generation.speculation.costs import LIMIT, Costs
from localllm.generation.stepper import Step, Stepper, plain


class Tally:
    """What guessing did for one answer."""

    def __init__(self) -> None:
        self.drafted = self.accepted = self.tokens = 0
        self.plain_seconds = 0.0

    def saw(self, found: Sequence[int], drafted: int, plain_seconds: float) -> None:
        """A step verified ``drafted`` guesses and gave these tokens, which would have taken ``plain_seconds`` without."""
        self.drafted += drafted
        self.accepted += len(found) - 1
        self.tokens += len(found)
        self.plain_seconds += plain_seconds

    def result(self) -> Speculation:
        """As it is shown."""
        return Speculation(self.drafted, self.accepted, self.tokens / self.plain_seconds if self.plain_seconds else 0.0)


class Speculator:
    """Steps of several tokens behind the first, which comes with the prompt. ``ends``: ids behind which nothing is guessed; ``most``: how
    many tokens the answer may have."""

    def __init__(
        self,
        stepper: Stepper,
        prompt: Sequence[int],
        progress: Progress | None,
        *,
        chooser: Chooser,
        costs: Costs,
        tally: Tally,
        ends: Collection[int] = (),
        most: int | None = None,
    ) -> None:
        self._stepper, self._chooser, self._costs, self._tally, self._ends = stepper, chooser, costs, tally, ends
        self._text = list(prompt)
        self._end = None if most is None else len(prompt) + most
        self._first: Step | None = plain(stepper, prompt, progress)
        self._untold: Sequence[int] = self._text

    def __call__(self, state: sampling.State) -> tuple[Sequence[int], sampling.State]:
        """The next tokens, and the state after them."""
        if self._first:
            found, state = self._first(state)
            self._first = None
            self._untold = [*self._text, *found]
        else:
            self._chooser.extend(self._untold)
            found, state = self._guess(state)
            self._untold = found
        self._text += found
        return found, state

    def _guess(self, state: sampling.State) -> tuple[Sequence[int], sampling.State]:
        started = time.perf_counter()
        pending = self._text[self._stepper.length :]
        guesses = self._up_to_an_end(self._chooser.choose(state, self._room(len(pending))))
        chosen = time.perf_counter()
        rows = self._stepper.rows([*pending, *guesses], last=1 + len(guesses), likeliest=state.likeliest)
        fed = time.perf_counter()
        found, state = verify(guesses, rows, state)
        wrong = len(guesses) + 1 - len(found)
        if wrong:
            self._stepper.truncate(self._stepper.length - wrong)
        self._costs.took(len(pending) + len(guesses), fed - chosen)
        self._chooser.saw(found, fed - started)
        self._tally.saw(found, len(guesses), len(found) * self._costs.seconds(1) + time.perf_counter() - fed)
        return found, state

    def _up_to_an_end(self, guesses: Sequence[int]) -> Sequence[int]:
        return guesses[: next((n for n, token in enumerate(guesses, 1) if token in self._ends), len(guesses))]

    def _room(self, pending: int) -> int:
        """Guesses that can be verified: the answer's last token comes without one."""
        room = min(LIMIT, self._stepper.room) - pending
        return room if self._end is None else min(room, self._end - len(self._text) - 1)


def verify(guesses: Sequence[int], rows: Iterable[sampling.Row], state: sampling.State) -> tuple[list[int], sampling.State]:
    """The tokens that the model chooses after each row, up to the first that was not guessed, and the state after them."""
    found: list[int] = []
    for n, row in enumerate(rows):
        token, state = sampling.step(state, row)
        found.append(token)
        if n == len(guesses) or token != guesses[n]:
            break
    return found, state
