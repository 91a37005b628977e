"""Progress on stderr, shown only to a person and only where something takes a while."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

DELAY = 0.5
"""Seconds before anything is shown."""

_WORDS = {
    "download": "fetching",
    "load": "loading",
    "compile": "compiling for this machine (once)",
    "prompt": "reading the prompt",
    "perplexity": "scoring",
    "bench": "timing",
}
_BYTES = ("download", "load")


class Pace:
    """When a job will end, from what it has done so far; ``what`` it does, and what was done at its first report."""

    def __init__(self, what: str, done: int) -> None:
        self.what, self._first, self._began = what, done, time.monotonic()
        self._end: float | None = None

    def report(self, done: int, total: int) -> None:
        """So much is done now."""
        if done > self._first:
            now = time.monotonic()
            self._end = now + (now - self._began) * (total - done) / (done - self._first)

    def left(self) -> str:
        """The time that is left as minutes and seconds, empty while nobody knows."""
        if self._end is None:
            return ""
        seconds = max(0, round(self._end - time.monotonic()))
        return f"{seconds // 60}:{seconds % 60:02} left"


class Progress:
    """A context manager that is called as progress(what, done, total), from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest = ("", 0, 0)
        self._pace = Pace("", 0)
        self._timer: threading.Timer | None = None
        self._bar: Bar | None = None
        self._closed = not sys.stderr.isatty()

    def __call__(self, what: str, done: int, total: int) -> None:
        with self._lock:
            if self._closed:
                return
            self._latest = (what, done, total)
            if what != self._pace.what:
                self._pace = Pace(what, done)
            self._pace.report(done, total)
            if self._bar is not None:
                self._update(self._bar)
            elif self._timer is None:
                # A timer, since the first call may be the last for long: compiling the first kernel says nothing meanwhile.
                self._timer = threading.Timer(DELAY, self._show)
                self._timer.daemon = True
                self._timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take everything off the screen; nothing is shown from now on."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
        from rich.progress import Progress as Bar
        from rich.text import Text

        progress = self

        class Left(ProgressColumn):
            """Counts down between reports; rich's own column knows nothing before the third one, which takes a long prompt ten seconds."""

            def render(self, task: Task) -> Text:
                return Text(progress._pace.left(), style="progress.remaining")

        bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[amount]}"),
            Left(),
            console=Console(stderr=True),
            transient=True,
        )
        with self._lock:
            if not self._closed:
                self._bar = bar
                bar.start()
                self._update(bar)

    def _update(self, bar: Bar) -> None:
        what, done, total = self._latest
        task = next((task for task in bar.tasks if task.fields["what"] == what), None)
        amount = f"{done / 1e6:.0f}/{total / 1e6:.0f} MB" if what in _BYTES else f"{done}/{total}"
        if task is None:
            for other in bar.tasks:
                bar.update(other.id, visible=False)
            bar.add_task(_WORDS.get(what, what), total=total, completed=done, what=what, amount=amount)
        else:
            bar.update(task.id, total=total, completed=done, amount=amount, visible=True)
