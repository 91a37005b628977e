"""The second layer: an answer as events, while it is made."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from types import TracebackType

from localllm.errors import OptionError
from localllm.generation import sampling
from localllm.generation.answer import Answer, Job, drawn_seed
from localllm.generation.results import Event, Logprob, Result
from localllm.generation.stepper import Stepper
from localllm.generation.stops import StopScanner


class Stream(Iterator[Event]):
    """An iterator of events. Its line is taken at the first event and given back at the last, or when the stream is closed or dropped.

    Raises ContextFullError at once where the prompt leaves no room for an answer and nothing can be dropped.
    """

    def __init__(self, job: Job) -> None:
        if not job.prompt:
            raise OptionError("the prompt is empty; expected at least one token to continue")
        self.options = job.options
        """How the answer is made, as far as it was asked for."""
        seed = drawn_seed() if job.options.seed is None else job.options.seed
        logprobs: list[Logprob] | None = None if job.options.logprobs is None else []
        self._answer = Answer(job.prompt, seed, job.speculation, job.options.completion, logprobs)
        if len(job.prompt) >= job.context:
            self._answer.make_room(job)
        # The generator does not know this object: a cycle would keep the line until the garbage collector runs.
        self._events = _events(job, self._answer)

    @property
    def result(self) -> Result:
        """The answer as far as it went: after an interruption too, with ``finish_reason`` "interrupted"."""
        return self._answer.result()

    @property
    def finished(self) -> bool:
        """Whether all tokens are known: only the last event is still to come, if any."""
        return self._answer.finish is not None

    def run(self) -> Result:
        """The third layer: listen to the end, and give the result."""
        for _ in self:
            pass
        return self.result

    def close(self) -> None:
        """Stop, and give the line back."""
        self._events.close()

    def __next__(self) -> Event:
        return next(self._events)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _events(job: Job, answer: Answer) -> Generator[Event, None, None]:
    scanner = StopScanner(job.options.stops)
    with closing(_tokens(job, answer)) as tokens:
        for token in tokens:
            text = "" if token in job.ends or answer.stop is not None else scanner.push(job.decoder.push(token))
            if scanner.found is not None:
                answer.finish = "stop"
            yield answer.event(text, token)
    rest = scanner.push(job.decoder.flush()) + scanner.flush()
    answer.stop = answer.stop if scanner.found is None else scanner.found
    yield answer.event(rest)


def _tokens(job: Job, answer: Answer) -> Generator[int, None, None]:
    state = sampling.begin(job.options, answer.seed, ends=tuple(job.ends), breakers=job.breakers).after(answer.base)
    while answer.finish is None:
        with answer.line(job) as stepper, closing(_run(job, answer, stepper, state)) as tokens:
            state = yield from tokens
        if answer.finish is None:
            answer.make_room(job)


def _run(job: Job, answer: Answer, stepper: Stepper, state: sampling.State) -> Generator[int, None, sampling.State]:
    """Tokens until the answer ends or the context is full; the state behind them."""
    step = job.provider(stepper, answer.base, job.progress)
    first = True
    while answer.finish is None and answer.length < job.context:
        try:
            found, state = answer.timed(step, state)
        finally:
            if not answer.tokens:
                answer.computed = min(stepper.length, answer.prompt_tokens) - answer.cached
        if first:
            stepper.checkpoint()  # where another answer to the same prompt begins
        first = False
        scores, state = state.scores, state.forgetful()
        for n, token in enumerate(found):
            answer.tokens.append(token)
            if answer.logprobs is not None:
                answer.logprobs.append(scores[n])
            answer.finish = answer.ended(job)
            yield token
            # The listener sets it too, when a stop string appears.
            if answer.finish is not None:
                break
    return state
