"""The second layer: an answer as events, while it is made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from types import TracebackType

from localllm.backends.base import Progress
from localllm.errors import ContextFullError, OptionError
from localllm.generation import sampling
from localllm.generation.options import GenerationOptions
from localllm.generation.results import Event, Finish, Logprob, Result, Timings, Usage
from localllm.generation.stepper import Step, Stepper, plain
from localllm.generation.stops import StopScanner
from localllm.generation.vocabulary import Decoder

Provider = Callable[[Stepper, Sequence[int], Progress | None], Step]


@dataclass(slots=True, kw_only=True)
class Job:
    """What an answer is made from. ``ends``: ids that end it; ``context``: tokens that prompt and answer may have together;
    ``provider``: makes the tokens, ``plain`` or one that guesses ahead; ``breakers``: the sequence breakers of DRY."""

    line: Callable[[], Stepper]
    prompt: Sequence[int]
    options: GenerationOptions
    decoder: Decoder
    ends: Collection[int]
    context: int
    progress: Progress | None = None
    provider: Provider = plain
    breakers: sampling.Breakers | None = None


class Stream(Iterator[Event]):
    """An iterator of events. Its line is taken at the first event and given back at the last, or when the stream is closed or dropped.

    Raises ContextFullError at once where the prompt leaves no room for an answer.
    """

    def __init__(self, job: Job) -> None:
        _require_room(len(job.prompt), job.context)
        self.options = job.options
        """How the answer is made, as far as it was asked for."""
        seed = drawn_seed() if job.options.seed is None else job.options.seed
        self._answer = _Answer(len(job.prompt), seed, job.options.completion, [] if job.options.logprobs is not None else None)
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


@dataclass(slots=True)
class _Answer:
    """What is known of an answer so far."""

    prompt_tokens: int
    seed: int
    completion: int = 0
    logprobs: list[Logprob] | None = None
    finish: Finish | None = None
    stop: str | int | None = None
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    prompt_seconds: float = 0.0
    completion_seconds: float = 0.0

    def timed(self, step: Step, state: sampling.State) -> tuple[Sequence[int], sampling.State]:
        start = time.perf_counter()
        try:
            return step(state)
        finally:
            spent = time.perf_counter() - start
            if self.tokens:
                self.completion_seconds += spent
            else:
                self.prompt_seconds += spent

    def event(self, text: str, token: int | None = None) -> Event:
        self.texts.append(text)
        if token is None:
            return Event(text, None, self.result(), None, self.completion)
        return Event(text, token, None, self.logprobs[-1] if self.logprobs else None, self.completion)

    def result(self) -> Result:
        n = len(self.tokens)
        timings = Timings(self.prompt_seconds, self.completion_seconds, self.prompt_tokens, n)
        usage = Usage(self.prompt_tokens, n)
        text, tokens = "".join(self.texts), tuple(self.tokens)
        logprobs = None if self.logprobs is None else tuple(self.logprobs)
        return Result(text, tokens, self.finish or "interrupted", usage, timings, self.seed, self.stop, self.completion, logprobs)


def drawn_seed() -> int:
    """A seed for whoever gave none."""
    return int.from_bytes(os.urandom(4), "little")


def _require_room(prompt: int, context: int) -> None:
    if not prompt:
        raise OptionError("the prompt is empty; expected at least one token to continue")
    if prompt >= context:
        raise ContextFullError(
            f"the prompt has {prompt} tokens and leaves no room for an answer in the context of {context}: "
            f"{prompt - context + 1} too many; shorten it or load the model with a larger ctx"
        )


def _events(job: Job, answer: _Answer) -> Generator[Event, None, None]:
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


def _tokens(job: Job, answer: _Answer) -> Generator[int, None, None]:
    state = sampling.begin(job.options, answer.seed, ends=tuple(job.ends), breakers=job.breakers).after(job.prompt)
    with job.line() as stepper:
        step = job.provider(stepper, job.prompt, job.progress)
        while answer.finish is None:
            found, state = answer.timed(step, state)
            scores, state = state.scores, state.forgetful()
            for n, token in enumerate(found):
                answer.tokens.append(token)
                if answer.logprobs is not None:
                    answer.logprobs.append(scores[n])
                answer.finish = _finish(job, answer)
                yield token
                # The listener sets it too, when a stop string appears.
                if answer.finish is not None:
                    break


def _finish(job: Job, answer: _Answer) -> Finish | None:
    made = len(answer.tokens)
    if answer.tokens[-1] in job.options.stop_token_ids:
        answer.stop = answer.tokens[-1]
        return "stop"
    if answer.tokens[-1] in job.ends and not job.options.ignore_eos:
        return "stop"
    if made == job.options.max_tokens:
        return "length"
    return "context" if len(job.prompt) + made >= job.context else None
