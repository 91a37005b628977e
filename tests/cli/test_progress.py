"""Progress: only for a person, only after a while, gone at the end."""

from __future__ import annotations

import time

import pytest

from localllm.cli import progress as progress_module
from localllm.cli.progress import Pace, Progress
from tests.cli.fakes import Terminal


def hurry(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal, and the delay short. Called in the test: pytest replaces stderr after the fixtures."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress_module, "DELAY", 0.05)
    for name in ("TERM", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def wait_for(screen: Terminal, text: str) -> None:
    """Until a text is on the screen."""
    end = time.monotonic() + 20
    while text not in screen.getvalue():
        assert time.monotonic() < end, screen.getvalue()
        time.sleep(0.01)


def test_shown_though_nothing_more_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = hurry(monkeypatch)
    with Progress() as progress:
        progress("compile", 0, 12)
        wait_for(screen, "compiling for this machine (once)")
        wait_for(screen, "0/12")


def test_bytes_and_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = hurry(monkeypatch)
    with Progress() as progress:
        progress("download", 1_000_000, 98_000_000)
        wait_for(screen, "1/98 MB")
        progress("load", 50_000_000, 98_000_000)
        wait_for(screen, "loading")
    shown = len(screen.getvalue())
    progress("load", 98_000_000, 98_000_000)
    assert len(screen.getvalue()) == shown


def test_nothing_for_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = hurry(monkeypatch)
    monkeypatch.setattr(progress_module, "DELAY", 0.3)
    with Progress() as progress:
        progress("load", 0, 10)
        progress("load", 10, 10)
    time.sleep(0.4)
    assert screen.getvalue() == ""


def test_nothing_where_nobody_looks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "DELAY", 0.0)
    with Progress() as progress:
        progress("load", 0, 10)
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    pace = Pace("prompt", 1000)  # tokens that need not be computed do not count
    pace.report(1000, 4000)
    assert pace.left() == ""
    now += 10
    pace.report(2000, 4000)
    assert pace.left() == "0:20 left"
    now += 5
    assert pace.left() == "0:15 left"
    now += 60
    assert pace.left() == "0:00 left"
    pace.report(2500, 4000)
    assert pace.left() == "1:15 left"


def test_the_time_that_is_left_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = hurry(monkeypatch)
    with Progress() as progress:
        progress("prompt", 0, 3000)
        time.sleep(0.1)
        progress("prompt", 5, 3000)
        wait_for(screen, "reading the prompt")
        wait_for(screen, "left")
