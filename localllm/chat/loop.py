"""The chat loop: a message from the person, an answer from the model, and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Protocol

from localllm.chat import terminal
from localllm.errors import ContextFullError, TemplateError

if TYPE_CHECKING:
    from localllm.generation.results import Result

HELP = """/reset  begin anew, with the system message alone
/help   show this
/exit   end, as Ctrl-D does
Ctrl-C stops an answer; Alt-Enter begins a new line of the message."""

Read = Callable[[], str]
"""Gives the next message; raises EOFError at the end, KeyboardInterrupt to drop what was typed."""
Write = Callable[[str], None]


class Talker(Protocol):
    """What is needed of a model: ``Model.stream``."""

    @property
    def stream(self) -> Callable[..., Any]: ...


def dropped(result: Result) -> str:
    """What an answer that is truncated has forgotten."""
    turns = f" ({result.dropped_turns} turns)" if result.dropped_turns else ""
    return f"the oldest {result.dropped_tokens} tokens{turns} were dropped"


class Conversation:
    """The messages so far. ``system``: what the first one tells the model to be; ``options``: those of ``stream``."""

    def __init__(self, model: Talker, system: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        self._model, self._options = model, dict(options or {})
        self._start = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self._start)

    def reset(self) -> None:
        """Forget all but the system message."""
        self.messages = list(self._start)

    def say(self, text: str, write: Write) -> None:
        """Send a message and write the answer as it comes. Ctrl-C stops it and keeps what there is.

        A message that got no answer at all is forgotten.
        """
        question = {"role": "user", "content": text}
        answer, note = "", ""
        try:
            with closing(self._model.stream([*self.messages, question], **self._options)) as events:
                for event in events:
                    answer += event.text
                    write(event.text)
                    if event.result is not None and event.result.truncated:
                        note = f"({dropped(event.result)} for lack of context; /reset begins anew)\n"
                    if event.result is not None and event.result.finish_reason == "context":
                        note += "(the context is full; /reset begins anew)\n"
        except KeyboardInterrupt:
            note = "(stopped)\n"
        if answer:
            self.messages += [question, {"role": "assistant", "content": answer}]
        write(note if answer.endswith("\n") else "\n" + note)


def chat(
    model: Talker,
    system: str | None = None,
    options: Mapping[str, Any] | None = None,
    read: Read | None = None,
    write: Write = terminal.write,
) -> int:
    """Talk until the person ends it; the exit code. Messages are read at the terminal unless ``read`` is given."""
    read = read or terminal.reader()
    conversation = Conversation(model, system, options)
    write("/help shows what can be done here\n")
    while True:
        try:
            text = read().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        if text in ("/exit", "/quit", "/bye"):
            return 0
        if text:
            _turn(conversation, text, write)


def _turn(conversation: Conversation, text: str, write: Write) -> None:
    if text == "/reset":
        conversation.reset()
        write("this is a new conversation\n")
    elif text == "/help":
        write(HELP + "\n")
    elif text.startswith("/") and text[1:].isalpha():
        write(f"{text} is no command; /help shows those there are\n")
    else:
        try:
            conversation.say(text, write)
        except ContextFullError as error:
            write(f"error: {error}; /reset begins anew\n")
        except TemplateError as error:
            write(f"error: {error}\n")
