"""The first layer: ids in, logits out, over one line of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from localllm.backends.base import Chunk, Float, Outputs, Progress, Session, Want
from localllm.errors import BackendError, ContextFullError, OptionError
from localllm.generation import sampling

Step = Callable[[sampling.State], tuple[Sequence[int], sampling.State]]
"""A provider of tokens: given the state after all tokens so far, the next ones (at least one) and the state after them."""


class Stepper:
    """A line of tokens that grows by ``feed``. A context manager; closing gives the line's storage back.

    ``vocab``: ids must be below it. ``context``: the tokens that the line may hold. ``batch``: rows computed at once.
    """

    def __init__(self, session: Session, *, vocab: int, context: int, batch: int) -> None:
        self._session, self._vocab, self._context, self._batch = session, vocab, context, batch
        self._line = session.new_line()
        self._open = True

    @property
    def length(self) -> int:
        """Tokens in the line."""
        return self._line.length

    def feed(self, tokens: Sequence[int], *, last: int = 1, progress: Progress | None = None) -> Float:
        """Append tokens; the logits after each of the ``last`` ones: (last, V) float32, the caller's own.

        Raises OptionError for ids that do not exist, ContextFullError before anything is computed.
        """
        ids = self._checked(tokens, last)
        if len(ids) <= self._batch:  # one chunk: its logits are the caller's own already
            return self._chunk(ids, 0, last, progress)
        result: Float = np.empty((last, self._vocab), np.float32)
        done = 0
        for part in self._run(ids, last, progress):
            result[done : done + len(part)] = part
            done += len(part)
        return result

    def parts(self, tokens: Sequence[int], *, last: int = 1, progress: Progress | None = None) -> Iterator[Float]:
        """As ``feed``, but chunk by chunk, (n, V) each, so that all rows are never in memory together."""
        return self._run(self._checked(tokens, last), last, progress)

    def rows(self, tokens: Sequence[int], *, last: int = 1, likeliest: int = 0, progress: Progress | None = None) -> Sequence[sampling.Row]:
        """As ``feed``, but of each row only the ``likeliest`` tokens, if not 0."""
        if likeliest == 0:
            return list(self.feed(tokens, last=last, progress=progress))
        ids = self._checked(tokens, last)
        found: list[sampling.Row] = []
        for start in range(0, len(ids), self._batch):
            found += self._forward(ids, start, last, likeliest, progress).likeliest[0]
        return found

    def follow(self, other: Stepper) -> None:
        """Become a fork of another line: the same past, on the same pages as long as neither writes to them."""
        self._line.close()
        self._line = other._line.fork()

    @property
    def closed(self) -> bool:
        """Whether the line was given back."""
        return not self._open

    def close(self) -> None:
        """Give the line back. Harmless when done twice."""
        if self._open:
            self._open = False
            self._line.close()

    def __enter__(self) -> Stepper:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self, ids: Sequence[int], last: int, progress: Progress | None) -> Iterator[Float]:
        for start in range(0, len(ids), self._batch):
            part = self._chunk(ids, start, last, progress)
            if len(part):
                yield part

    def _chunk(self, ids: Sequence[int], start: int, last: int, progress: Progress | None) -> Float:
        return self._forward(ids, start, last, 0, progress).logits[0]

    def _forward(self, ids: Sequence[int], start: int, last: int, likeliest: int, progress: Progress | None) -> Outputs:
        """Feed the next chunk from ``start`` on; the results of its share of the last tokens."""
        if not self._open:
            raise BackendError("this line is closed; start a new one")
        chunk = ids[start : start + self._batch]
        wanted = range(max(0, len(ids) - last - start), len(chunk))
        outputs = self._session.forward([Chunk(self._line, chunk, Want(wanted, likeliest))])
        if progress is not None:
            progress("prompt", start + len(chunk), len(ids))
        return outputs

    def _next(self, token: int, likeliest: int) -> Chunk:
        if not self._open:
            raise BackendError("this line is closed; start a new one")
        return Chunk(self._line, self._checked([token], 1), Want((0,), likeliest))

    def _checked(self, tokens: Sequence[int], last: int) -> list[int]:
        ids = check_ids(tokens, self._vocab)
        if isinstance(last, bool) or not isinstance(last, Integral) or not 1 <= last <= len(ids):
            raise OptionError(f"last is {last!r}; expected 1 to {len(ids)}, the number of tokens")
        room = self._context - self._line.length
        if len(ids) > room:
            raise ContextFullError(
                f"{len(ids)} tokens do not fit into the context of {self._context}, which has room for {room}: "
                f"{len(ids) - room} too many; shorten the text or give a larger ctx"
            )
        return ids


def feed_together(steppers: Sequence[Stepper], tokens: Sequence[int], likeliest: int = 0) -> list[sampling.Row]:
    """Append one token to each of these lines of one session, in as few batches as hold them; the row after each, as of ``rows``.

    Raises as ``feed`` does, before anything is computed.
    """
    chunks = [stepper._next(token, likeliest) for stepper, token in zip(steppers, tokens, strict=True)]
    found: list[sampling.Row] = []
    for start in range(0, len(chunks), steppers[0]._batch):
        outputs = steppers[0]._session.forward(chunks[start : start + steppers[0]._batch])
        found += [rows[0] for rows in (outputs.likeliest if likeliest else outputs.logits)]
    return found


def check_ids(tokens: Sequence[int] | NDArray[np.integer], vocab: int) -> list[int]:
    """The ids as Python integers. Raises OptionError where there are none, or one is not in the vocabulary."""
    if len(tokens) == 1 and type(tokens[0]) is int and 0 <= tokens[0] < vocab:  # each token of an answer: NumPy would take 30 microseconds
        return [tokens[0]]
    ids = np.asarray(tokens)
    if ids.ndim != 1 or not ids.size:
        raise OptionError(f"tokens have the shape {ids.shape}; expected a list of at least one id")
    if ids.dtype.kind not in "iu":
        raise OptionError(f"tokens are of type {ids.dtype}; expected whole numbers")
    wrong = ids[(ids < 0) | (ids >= vocab)]
    if wrong.size:
        raise OptionError(f"token {wrong[0]} is not in the vocabulary; expected 0 to {vocab - 1}")
    return [int(i) for i in ids]


def plain(stepper: Stepper, prompt: Sequence[int], progress: Progress | None = None) -> Step:
    """One token a step: feeds the prompt at the first, and at each later one the token before."""
    pending: Sequence[int] = prompt

    def next_token(state: sampling.State) -> tuple[Sequence[int], sampling.State]:
        nonlocal pending, progress
        (row,) = stepper.rows(pending, likeliest=state.likeliest, progress=progress)
        token, after = sampling.step(state, row)
        pending, progress = (token,), None
        return pending, after

    return next_token
