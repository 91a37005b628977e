"""The chat loop: what the model is told, and what ends what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localllm.chat import chat
from localllm.errors import ContextFullError
from tests.cli.fakes import FakeModel


def talk(model: FakeModel, *lines: str | BaseException, system: str | None = None, **options: Any) -> tuple[int, str]:
    """Say these lines, then end; the exit code and what was shown."""
    left: list[str | BaseException] = [*lines, EOFError()]
    shown: list[str] = []

    def read() -> str:
        line = left.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line

    return chat(model, system, options, read, shown.append), "".join(shown)


def said(model: FakeModel, turn: int) -> list[tuple[str, str]]:
    """The messages that the model was given in a turn."""
    return [(message["role"], message["content"]) for message in model.asked[turn][0]]


def answers(*texts: str | Sequence[str | BaseException]) -> FakeModel:
    return FakeModel([[text] if isinstance(text, str) else text for text in texts])


def test_messages_add_up() -> None:
    model = answers("Hi!", "Fine.")
    code, shown = talk(model, "hello", "  ", "how are you?", system="Be brief.", temperature=0)
    assert code == 0 and shown.endswith("Hi!\nFine.\n")
    assert said(model, 1) == [("system", "Be brief."), ("user", "hello"), ("assistant", "Hi!"), ("user", "how are you?")]
    assert model.asked[0][1] == {"temperature": 0}


def test_reset_keeps_the_system_message() -> None:
    model = answers("Hi!", "Hi again!")
    talk(model, "hello", "/reset", "hello", system="Be brief.")
    assert said(model, 1) == [("system", "Be brief."), ("user", "hello")]


def test_ctrl_c_stops_the_answer_and_keeps_it() -> None:
    model = answers(["One, ", KeyboardInterrupt()], "ok")
    code, shown = talk(model, "count", "go on")
    assert code == 0 and "One, \n(stopped)\nok\n" in shown
    assert said(model, 1) == [("user", "count"), ("assistant", "One, "), ("user", "go on")]
    assert model.streams[0].closed


def test_ctrl_c_before_any_answer_forgets_the_question() -> None:
    model = answers([KeyboardInterrupt()], "ok")
    talk(model, "count", "hello")
    assert said(model, 1) == [("user", "hello")]


def test_ctrl_c_while_typing() -> None:
    model = answers("Hi!")
    assert talk(model, KeyboardInterrupt(), "hello")[0] == 0
    assert said(model, 0) == [("user", "hello")]


def test_commands_are_not_sent() -> None:
    model = answers("Hi!")
    code, shown = talk(model, "/help", "/nonsense", "/exit", "not reached")
    assert code == 0 and model.asked == []
    assert "/reset  begin anew" in shown and "/nonsense is no command" in shown


def test_a_path_is_no_command() -> None:
    model = answers("A file of users.")
    talk(model, "/etc/passwd")
    assert said(model, 0) == [("user", "/etc/passwd")]


def test_a_full_context_does_not_end_the_chat() -> None:
    model = answers([ContextFullError("too long")], "Hi!")
    code, shown = talk(model, "a long story", "hello")
    assert code == 0 and "error: too long; /reset begins anew\n" in shown
    assert said(model, 1) == [("user", "hello")]


def test_an_answer_that_fills_the_context() -> None:
    model = answers("and so on")
    model.finish = "context"
    assert "and so on\n(the context is full; /reset begins anew)\n" in talk(model, "tell me")[1]


def test_what_was_dropped_is_said() -> None:
    model = answers("Hi!")
    model.dropped = 30, 0
    _, shown = talk(model, "hello", on_full="shift")
    assert "Hi!\n(the oldest 30 tokens were dropped for lack of context; /reset begins anew)\n" in shown
