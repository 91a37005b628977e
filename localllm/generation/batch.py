"""Several answers to one prompt: their lines share its cache, and each step of all of them is one batch."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType

from localllm.backends.base import Progress
from localllm.generation import sampling
from localllm.generation.results import Event, Result, Timings
from localllm.generation.stepper import Step, Stepper, feed_together
from localllm.generation.stream import Job, Provider, Stream, drawn_seed
from localllm.generation.vocabulary import Decoder


class Streams(Iterator[Event]):
    """An iterator of the events of several answers in turn, one for each decoder. ``Event.completion`` tells them apart; it counts from
    the job's own number.

    Each is what it would be alone with the same seed and number. Lines are taken at the first event and given back as answers end, or
    when this is closed or dropped.
    """

    def __init__(self, job: Job, decoders: Sequence[Decoder]) -> None:
        self.options = job.options
        n, seed = len(decoders), drawn_seed() if job.options.seed is None else job.options.seed
        lines, self._clock = _Lines(job, n), _Clock(n)
        self._answers = [_answer(job, lines, place, decoder, seed) for place, decoder in enumerate(decoders)]
        # The generator does not know this object: a cycle would keep the lines until the garbage collector runs.
        self._events = _events(self._answers, lines, self._clock)

    @property
    def results(self) -> list[Result]:
        """The answers as far as they went."""
        return [self._clock.timed(place, stream.result) for place, stream in enumerate(self._answers)]

    def run(self) -> list[Result]:
        """Listen to the end, and give the results."""
        for _ in self:
            pass
        return self.results

    def close(self) -> None:
        """Stop, and give the lines back."""
        self._events.close()

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _answer(job: Job, lines: _Lines, place: int, decoder: Decoder, seed: int) -> Stream:
    options = replace(job.options, seed=seed, completion=job.options.completion + place)
    return Stream(replace(job, options=options, decoder=decoder, line=partial(lines.line, place), provider=lines.provider(place)))


def _events(answers: Sequence[Stream], lines: _Lines, clock: _Clock) -> Generator[Event, None, None]:
    with ExitStack() as stack:
        stack.callback(lines.close)
        for stream in answers:
            stack.callback(stream.close)
        left = list(range(len(answers)))
        while left:
            for place in tuple(left):
                with clock:
                    event = next(answers[place])
                yield event
                if answers[place].finished:
                    # At once, so that the next batch is without its line.
                    left.remove(place)
                    clock.stop(place)
                    last = next(answers[place])
                    assert last.result is not None
                    yield replace(last, result=clock.timed(place, last.result))


class _Lines:
    """The lines of all answers. Whoever asks first has the prompt computed, and then each step of all that have said a token."""

    def __init__(self, job: Job, n: int) -> None:
        self._job, self._n = job, n
        self._steppers: list[Stepper] = []
        self._rows: dict[int, sampling.Row] = {}
        self._said: dict[int, int] = {}

    def line(self, place: int) -> Stepper:
        """That of one answer; the first must be asked for first."""
        if not self._steppers:
            self._steppers.append(self._job.line())
        return self._steppers[place]

    def provider(self, place: int) -> Provider:
        """Of the tokens of one answer."""

        def start(stepper: Stepper, prompt: Sequence[int], progress: Progress | None) -> Step:
            def step(state: sampling.State) -> tuple[Sequence[int], sampling.State]:
                if place not in self._rows:
                    self._rows |= self._next(state.likeliest) if self._said else self._first(prompt, state.likeliest, progress)
                token, after = sampling.step(state, self._rows.pop(place))
                self._said[place] = token
                return (token,), after

            return step

        return start

    def close(self) -> None:
        """Give all lines back."""
        for stepper in self._steppers:
            stepper.close()

    def _first(self, prompt: Sequence[int], likeliest: int, progress: Progress | None) -> dict[int, sampling.Row]:
        (row,) = self._steppers[0].rows(prompt, likeliest=likeliest, progress=progress)
        for _ in range(self._n - 1):
            self._steppers.append(self._job.line())
            self._steppers[-1].follow(self._steppers[0])
        return dict.fromkeys(range(self._n), row)

    def _next(self, likeliest: int) -> dict[int, sampling.Row]:
        said = {place: token for place, token in self._said.items() if not self._steppers[place].closed}
        self._said.clear()
        rows = feed_together([self._steppers[place] for place in said], list(said.values()), likeliest)
        return dict(zip(said, rows, strict=True))


class _Clock:
    """Seconds of computation: until the first token is known, and until each answer ends."""

    def __init__(self, n: int) -> None:
        self._all: float = 0.0
        self._first: float | None = None
        self._ends: list[float | None] = [None] * n

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._all += time.perf_counter() - self._start
        if self._first is None:
            self._first = self._all

    def stop(self, place: int) -> None:
        """This answer has ended."""
        self._ends[place] = self._all

    def timed(self, place: int, result: Result) -> Result:
        """An answer with the time that all took together until it ended: alone each would have taken nearly as long."""
        first, end = self._first or 0.0, self._ends[place]
        spent = (self._all if end is None else end) - first
        return replace(result, timings=Timings(first, spent, result.usage.prompt_tokens, result.usage.completion_tokens))
