"""Lines of earlier prompts are continued; what is said does not change by it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from localllm import memory
from localllm.backends.base import Progress
from localllm.generation.answer import Job
from localllm.generation.budget import SHARE, share_of_free
from localllm.generation.options import make
from localllm.generation.past import Past
from localllm.generation.prefix import PrefixCache
from localllm.generation.results import Result
from localllm.generation.stepper import Stepper
from localllm.generation.stream import Stream
from tests.generation.fakes import BOT, END, VOCAB, FakeDecoder, FakeLine, FakeSession, noise, saying

PROMPT = [1, 2, 3, 4, 5, 6, BOT]


class Cached:
    """A session with a cache, and prompts that go through both."""

    def __init__(self, session: FakeSession | None = None, budget: int = 10**6) -> None:
        self.session = session or FakeSession(saying("hello"))
        self.cache = PrefixCache(self.session.new_line, lambda held: budget)

    def stream(self, prompt: Sequence[int] = PROMPT, progress: Progress | None = None, **options: Any) -> Stream:
        made, ends = make({"temperature": 0, **options}), frozenset({END})
        self.session.chunks.clear()
        return Stream(Job(line=self.line, prompt=prompt, options=made, decoder=FakeDecoder(), ends=ends, context=4096, progress=progress))

    def say(self, prompt: Sequence[int] = PROMPT, **options: Any) -> Result:
        return self.stream(prompt, **options).run()

    def line(self, prompt: Sequence[int]) -> Stepper:
        session, cache = self.session, self.cache
        return Stepper(session, vocab=VOCAB, context=4096, batch=session.batch, past=cache.take(prompt), give_back=cache.keep)

    def kept(self) -> list[int]:
        return sorted(len(line.tokens) for line in self.session.lines)


def test_the_same_prompt_again_computes_one_token_of_it() -> None:
    cached = Cached()
    first, again = cached.say(), cached.say()
    assert (first.usage.cached_tokens, first.usage.cache) == (0, "nothing is cached yet")
    assert (again.usage.cached_tokens, again.usage.cache) == (6, "memory")
    assert cached.session.chunks[0] == 1
    assert (again.text, again.tokens) == (first.text, first.tokens)
    assert again.usage.prompt_tokens == 7 and again.timings.prompt_tokens == 1


def test_a_conversation_goes_on_where_it_was() -> None:
    cached = Cached()
    first = cached.say()
    longer = [*PROMPT, *first.tokens, 7, 8, BOT]
    again = cached.say(longer)
    assert again.usage.cached_tokens == len(PROMPT) + len(first.tokens) - 1  # the token that ended the answer was never fed
    assert cached.session.chunks[0] == 4
    assert cached.kept() == [len(longer) + len(again.tokens) - 1]  # the shorter line is a part of the longer one


def test_prompts_that_part_share_what_is_before() -> None:
    cached = Cached()
    cached.say([1, 2, 3, 10, 11, BOT])
    other = cached.say([1, 2, 3, 20, BOT])
    assert other.usage.cached_tokens == 3
    assert cached.say([1, 2, 3, 10, 11, BOT]).usage.cached_tokens == 5
    strange = cached.say([9, 9, BOT])
    assert (strange.usage.cached_tokens, strange.usage.cache) == (0, "no cached text begins like this one")
    assert cached.say([BOT]).usage.cache == "a prompt of one token has no beginning"


@pytest.mark.parametrize("batch", [1, 2, 3, 512])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0, "seed": 4, "repeat_penalty": 1.5}])
def test_a_hit_changes_no_answer(batch: int, options: dict[str, Any]) -> None:
    cached = Cached(FakeSession(noise, batch))
    reused = []
    for prompt in ([1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4], [1, 2], [1, 2, 9], [1, 2, 3, 4, 5, 6, 7], [1]):
        found = cached.say(prompt, max_tokens=6, **options)
        assert found.tokens == Cached(FakeSession(noise)).say(prompt, max_tokens=6, **options).tokens
        reused.append(found.usage.cached_tokens)
    assert reused == [0, 4, 3, 1, 2, 5, 0]


def test_the_line_used_longest_ago_goes_when_there_are_too_many() -> None:
    cached = Cached(budget=40)
    for first in (10, 20, 30):
        cached.say([first, 2, 3, 4, BOT])  # ten tokens each, the answer's last one not among them
    assert cached.cache.bytes == 30
    assert cached.say([10, 2, 3, 4, BOT]).usage.cached_tokens == 4
    cached.say([40, 2, 3, 4, BOT])
    cached.say([50, 2, 3, 4, BOT])
    assert cached.cache.bytes == 40
    assert cached.say([10, 2, 3, 4, BOT]).usage.cached_tokens == 4
    assert cached.say([20, 2, 3, 4, BOT]).usage.cache == "no cached text begins like this one (1 were dropped for lack of room)"


def test_a_line_that_is_too_large_for_the_budget_takes_nobodys_place() -> None:
    cached = Cached(budget=15)
    cached.say([10, 2, BOT])
    cached.say([20, *[2] * 20, BOT])
    assert cached.kept() == [8]
    assert cached.say([10, 2, BOT]).usage.cached_tokens == 2


def test_the_budget_is_a_share_of_what_would_be_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: 100)
    assert share_of_free(20) == 120 // SHARE
    monkeypatch.setattr(memory, "free", lambda: None)
    assert share_of_free(20) == 1 << 30


class Forgetful(FakeLine):
    """A line that can only be cut to a multiple of four."""

    def truncate(self, n: int) -> int:
        return super().truncate(n if n >= self.length else n // 4 * 4)

    def fork(self) -> FakeLine:
        return Forgetful(self._session, self.tokens)


class ForgetfulSession(FakeSession):
    def new_line(self) -> FakeLine:
        return Forgetful(self)


def test_a_line_that_cant_go_back_so_far_is_fed_the_rest_again() -> None:
    cached = Cached(ForgetfulSession(saying("hello")))
    first = cached.say()
    again = cached.say()
    assert again.usage.cached_tokens == 4
    assert again.tokens == first.tokens
    refused = cached.say([1, 2, 3, BOT])
    assert (refused.usage.cached_tokens, refused.usage.cache) == (0, "the cached lines that share 3 tokens with it can't go back so far")


def test_a_shorter_line_that_the_longer_one_cant_become_stays() -> None:
    cached = Cached(ForgetfulSession(saying("hello")))
    prompt = [1, 2, 3, 4, BOT]
    first = cached.say(prompt)
    cached.say([*prompt, *first.tokens, 7, BOT])
    assert cached.kept() == [10, 18]
    assert cached.say([*prompt, *first.tokens, 9, BOT]).usage.cached_tokens == 10


def test_an_interrupted_prompt_is_continued() -> None:
    cached = Cached(FakeSession(saying("hello"), batch=2))

    def interrupt(what: str, done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    stream = cached.stream(progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        stream.run()
    assert stream.result.finish_reason == "interrupted"
    assert (stream.result.usage.prompt_tokens, stream.result.timings.prompt_tokens) == (7, 4)
    told: list[tuple[str, int, int]] = []
    cached.stream().close()
    result = cached.stream(progress=lambda *what: told.append(what)).run()
    assert (result.text, result.usage.cached_tokens) == ("hello", 4)
    assert told == [("prompt", 4, 7), ("prompt", 6, 7), ("prompt", 7, 7)]


def test_a_stream_that_is_dropped_leaves_its_line() -> None:
    cached = Cached()
    stream = cached.stream()
    next(stream)
    next(stream)
    del stream
    gc.collect()
    assert cached.kept() == [8]
    assert cached.say([*PROMPT, *b"he"]).usage.cached_tokens == 8


def test_a_line_that_comes_back_during_a_call_is_not_lost() -> None:
    cached = Cached()
    with cached.cache._lock:  # as the garbage collector may find it, in the thread that holds it
        cached.cache.keep([1, 2, 3], FakeLine(cached.session, [1, 2, 3]))
        assert cached.cache.bytes == 0
    assert cached.cache.take([9, 9]).note == "nothing is cached yet"
    assert cached.cache.take([1, 2, 3, 4]).tokens == [1, 2, 3]


def test_closing_closes_all_and_what_comes_later() -> None:
    cached = Cached()
    cached.say()
    stream = cached.stream([9, BOT])
    next(stream)
    cached.cache.close()
    assert len(cached.session.lines) == 1
    stream.close()
    assert not cached.session.lines


def test_clearing_forgets() -> None:
    cached = Cached()
    cached.say()
    cached.cache.clear()
    assert not cached.session.lines and cached.cache.bytes == 0
    assert cached.say().usage.cache == "nothing is cached yet"


def test_threads_may_share_it() -> None:
    cached = Cached(budget=60)
    wrong: list[object] = []

    def work(first: int) -> None:
        for n in range(40):
            prompt = [n % 3, first, n % 5]
            past: Past = cached.cache.take(prompt)
            assert isinstance(past.line, FakeLine)
            if past.line.tokens != list(past.tokens) or list(past.tokens) != prompt[: len(past.tokens)]:
                wrong.append(past)
            past.line.tokens += prompt[past.line.length :]
            cached.cache.keep(prompt, past.line)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cached.cache.bytes <= 60
    cached.cache.close()
    assert not cached.session.lines
