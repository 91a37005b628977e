"""A model that says what it is told to, and the command line run in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from localllm.cli import main
from localllm.generation.options import GenerationOptions, make
from localllm.generation.results import Event, Result, Timings, Usage


@dataclass
class FakeStream:
    """Gives ``pieces``; one that is an exception is raised."""

    pieces: Sequence[str | BaseException]
    finish: Literal["stop", "context", "interrupted"] = "stop"
    closed: bool = False
    said: list[str] = field(default_factory=list)
    options: GenerationOptions = field(default_factory=GenerationOptions)
    n: int = 1

    @property
    def result(self) -> Result:
        n = len(self.said)
        return Result("".join(self.said), tuple(range(n)), self.finish, Usage(5, n), Timings(0.5, 2.0, 5, n), seed=7)

    @property
    def results(self) -> list[Result]:
        return [replace(self.result, completion=n) for n in range(self.n)]

    def __iter__(self) -> Generator[Event, None, None]:
        for n, piece in enumerate(self.pieces):
            if isinstance(piece, BaseException):
                self.finish = "interrupted"
                raise piece
            self.said.append(piece)
            yield Event(piece, n)
        yield Event("", None, self.result)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeModel:
    """Remembers what it was asked; answers each time with the next of ``answers``."""

    answers: list[Sequence[str | BaseException]]
    finish: Literal["stop", "context"] = "stop"
    template: object = "a template"
    asked: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    loaded: dict[str, Any] = field(default_factory=dict)
    streams: list[FakeStream] = field(default_factory=list)
    recommended: dict[str, Any] = field(default_factory=dict)

    def stream(self, prompt: Any, *, progress: Any = None, **options: Any) -> FakeStream:
        self.asked.append((prompt, options))
        made = make({name: value for name, value in options.items() if name != "n"}, self.recommended)
        self.streams.append(FakeStream(self.answers[len(self.asked) - 1], self.finish, options=made, n=options.get("n", 1)))
        return self.streams[-1]

    def __enter__(self) -> FakeModel:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """A function that runs the command line: run("show", path, stdin=b"...", terminal=True)."""

    def run(*arguments: object, stdin: bytes = b"", terminal: bool = False) -> Ran:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", Terminal() if terminal else io.TextIOWrapper(io.BytesIO(stdin)))
            out = Terminal()
            if terminal:
                patch.setattr(sys, "stdout", out)
            code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, out.getvalue() if terminal else captured.out, captured.err)

    return run
