"""An answer that is being made: what it is made from, and what is known of it so far."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from localllm.backends.base import Progress
from localllm.errors import ContextFullError
from localllm.generation import sampling
from localllm.generation.full import Cut, Shorten
from localllm.generation.options import GenerationOptions
from localllm.generation.results import Event, Finish, Logprob, Result, Speculation, Timings, Usage
from localllm.generation.stepper import Step, Stepper, plain
from localllm.generation.vocabulary import Decoder

Provider = Callable[[Stepper, Sequence[int], Progress | None], Step]


@dataclass(slots=True, kw_only=True)
class Job:
    """What an answer is made from. ``line``: gives a line that holds some beginning of a prompt, or none of it; ``ends``: ids that end
    the answer; ``context``: tokens that both may have together; ``provider``: makes the tokens, ``plain`` or one that guesses ahead;
    ``speculation``: tells what that did; ``shorten``: what to do where both have too many tokens; ``breakers``: the sequence breakers of
    DRY."""

    line: Callable[[Sequence[int]], Stepper]
    prompt: Sequence[int]
    options: GenerationOptions
    decoder: Decoder
    ends: Collection[int]
    context: int
    progress: Progress | None = None
    provider: Provider = plain
    speculation: Callable[[], Speculation | None] = lambda: None
    shorten: Shorten | None = None
    breakers: sampling.Breakers | None = None


@dataclass(slots=True)
class Answer:
    """What is known of an answer so far."""

    base: Sequence[int]
    """What the answer continues: the prompt; after something was dropped, what is left of prompt and answer."""
    seed: int
    speculation: Callable[[], Speculation | None]
    completion: int = 0
    logprobs: list[Logprob] | None = None
    begins: int = 0
    """Tokens of the answer that are in the base."""
    dropped_tokens: int = 0
    dropped_turns: int = 0
    prompt_tokens: int = 0
    finish: Finish | None = None
    stop: str | int | None = None
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    prompt_seconds: float = 0.0
    completion_seconds: float = 0.0
    cached: int = 0
    cache: str = ""
    computed: int = 0
    """Tokens of the prompt that were computed."""

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.base)

    @property
    def length(self) -> int:
        """Tokens that the context holds, or would hold with the last one."""
        return len(self.base) + len(self.tokens) - self.begins

    def line(self, job: Job) -> Stepper:
        """A line for what is to be continued."""
        start = time.perf_counter()
        stepper = job.line(self.base)
        spent = time.perf_counter() - start
        if self.tokens:
            self.completion_seconds += spent
        else:
            self.cached, self.cache = len(stepper.past.tokens), stepper.past.note
            self.prompt_seconds += spent
        return stepper

    def make_room(self, job: Job) -> None:
        """Drop what the options say; where that is nothing, an answer that has begun ends, and one that has not is an error."""
        if job.options.on_full == "stop" or (self.tokens and job.shorten is None):
            self.finish = "context"
            return
        try:
            cut = (job.shorten or partial(_refuse, job))(self.tokens)
        except ContextFullError:
            if not self.tokens:
                raise
            self.finish = "context"
            return
        self.base, self.begins = cut.tokens, len(self.tokens)
        self.dropped_tokens, self.dropped_turns = cut.dropped_tokens, cut.dropped_turns
        if not self.tokens:
            self.prompt_tokens = len(cut.tokens)

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

    def ended(self, job: Job) -> Finish | None:
        """Why the answer ends with its last token; None if it does not."""
        if self.tokens[-1] in job.options.stop_token_ids:
            self.stop = self.tokens[-1]
            return "stop"
        if self.tokens[-1] in job.ends and not job.options.ignore_eos:
            return "stop"
        if len(self.tokens) == job.options.max_tokens:
            return "length"
        return "context" if job.shorten is None and self.length >= job.context else None

    def event(self, text: str, token: int | None = None) -> Event:
        self.texts.append(text)
        if token is None:
            return Event(text, None, self.result(), None, self.completion)
        return Event(text, token, None, self.logprobs[-1] if self.logprobs else None, self.completion)

    def result(self) -> Result:
        n = len(self.tokens)
        timings = Timings(self.prompt_seconds, self.completion_seconds, self.computed, n)
        usage = Usage(self.prompt_tokens, n, self.cached, self.cache)
        return Result(
            text="".join(self.texts),
            tokens=tuple(self.tokens),
            finish_reason=self.finish or "interrupted",
            usage=usage,
            timings=timings,
            seed=self.seed,
            stop=self.stop,
            completion=self.completion,
            logprobs=None if self.logprobs is None else tuple(self.logprobs),
            dropped_tokens=self.dropped_tokens,
            dropped_turns=self.dropped_turns,
            speculation=self.speculation(),
        )


def drawn_seed() -> int:
    """A seed for whoever gave none."""
    return int.from_bytes(os.urandom(4), "little")


def _refuse(job: Job, answer: Sequence[int]) -> Cut:
    prompt, context = len(job.prompt), job.context
    raise ContextFullError(
        f"the prompt has {prompt} tokens and leaves no room for an answer in the context of {context}: {prompt - context + 1} too many; "
        "shorten it, load the model with a larger ctx, or choose what is dropped (on_full, --on-full)"
    )
