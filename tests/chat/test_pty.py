"""The chat at a real terminal: keys, Ctrl-C, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")

TALKER = """
import fcntl, sys, termios, time, localllm
from localllm.cli import main
from tests.cli.fakes import FakeModel, FakeStream

class Model(FakeModel):
    def stream(self, messages, **options):
        said = messages[-1]["content"]
        if said == "count":
            return Slow(["1 ", "2 "] + ["more "] * 600)
        return FakeStream([f"You said {said!r}; messages: {len(messages)}."])

class Slow(FakeStream):
    def __iter__(self):
        for event in super().__iter__():
            yield event
            time.sleep(0.05)

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
localllm.load = lambda path, **options: Model([])
sys.exit(main(["run", sys.executable]))
"""


class Screen:
    """A program at a pseudo-terminal."""

    def __init__(self, code: str, home: Path) -> None:
        import termios

        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "HOME": str(home)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment, start_new_session=True
        )
        self.text = ""

    def wait_for(self, text: str) -> None:
        """Read until a text has come."""
        import select

        end = time.monotonic() + 30
        while text not in self.text:
            assert time.monotonic() < end, self.text
            if select.select([self.master], [], [], 0.2)[0]:
                self.text += os.read(self.master, 65536).decode()
        self.text = self.text[self.text.index(text) + len(text) :]

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.master, keys.encode())

    def is_as_before(self) -> bool:
        """Whether the terminal's settings are those from the start."""
        import termios

        return termios.tcgetattr(self.slave) == self.before


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    """A chat with a model that repeats."""
    found = Screen(TALKER, tmp_path)
    yield found
    found.process.kill()
    found.process.wait()
    os.close(found.master)
    os.close(found.slave)


def test_a_conversation(screen: Screen) -> None:
    screen.wait_for(">>>")
    screen.type("hello\r")
    screen.wait_for("You said 'hello'; messages: 1.")
    screen.wait_for(">>>")
    screen.type("one\x1b\rtwo\r")
    screen.wait_for(r"You said 'one\ntwo'; messages: 3.")
    screen.wait_for(">>>")
    screen.type("\x04")
    assert screen.process.wait(20) == 0
    assert screen.is_as_before()


def test_ctrl_c_stops_the_answer_not_the_chat(screen: Screen) -> None:
    screen.wait_for(">>>")
    screen.type("count\r")
    screen.wait_for("1 2 ")
    screen.type("\x03")
    screen.wait_for("(stopped)")
    screen.wait_for(">>>")
    screen.type("half a line\x03")
    screen.wait_for(">>>")
    screen.type("hello\r")
    screen.wait_for("You said 'hello'; messages: 3.")
    screen.wait_for(">>>")
    screen.type("/exit\r")
    assert screen.process.wait(20) == 0
    assert screen.is_as_before()
