"""What goes to the terminal: text from models and files must not command it."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable

from localllm.errors import FileError

# Control characters become their pictures (U+2400 on), a carriage return nothing, C1 controls the replacement character.
_TEXT = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {0x0D: None, 0x7F: 0x2421}
_TEXT |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE = {**_TEXT, 0x09: 0x2409, 0x0A: 0x240A, 0x0D: 0x240D, **dict.fromkeys((0x2028, 0x2029, *_BIDI), 0xFFFD)}


def clean(text: str) -> str:
    """A text whose control characters do nothing; lines and tabs stay."""
    return text.translate(_TEXT)


def line(text: str) -> str:
    """A name or value as part of one line: no control character does anything, nor can text be made to run the other way."""
    return text.translate(_LINE)


def prepare() -> None:
    """Let no character be an error: what a stream can't show is replaced, and what goes into a pipe is UTF-8. A closed stream is empty."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (it is the stream from now on)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def write(text: str) -> None:
    """Write a piece of an answer at once; as it is, unless a terminal shows it. Raises as ``flush`` does."""
    _attempt(sys.stdout.write, clean(text) if sys.stdout.isatty() else text)
    flush()


def write_line(text: str = "") -> None:
    """Write one line; its control characters are neutralised where a terminal shows it. Raises as ``flush`` does."""
    _attempt(sys.stdout.write, (line(text) if sys.stdout.isatty() else text) + "\n")


def flush() -> None:
    """Have everything written. Raises BrokenPipeError where the reader went away, FileError where it can't be written otherwise."""
    _attempt(sys.stdout.flush)


def _attempt(do: Callable[..., object], *arguments: str) -> None:
    try:
        do(*arguments)
    except OSError as error:
        # What is still buffered goes nowhere, or the interpreter would try again at its exit, and complain.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError) or (os.name == "nt" and error.errno == errno.EINVAL):
            raise BrokenPipeError from error
        raise FileError(f"standard output can't be written: {error.strerror}") from error


def interactive() -> bool:
    """Whether a person is at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def reader(prompt: str = ">>> ") -> Callable[[], str]:
    """A function that reads a message at the terminal: Enter sends it, Alt-Enter begins a new line, arrows recall earlier ones."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(prompt, multiline=True, key_bindings=keys)
    return session.prompt
