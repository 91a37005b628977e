"""Stop strings: found across the borders of tokens, and nothing of one ever shown."""

from __future__ import annotations

from collections.abc import Sequence


class StopScanner:
    """Lets text through until a stop string appears, holding back what could become the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """Take more text; give what is certain not to belong to a stop string. Once one is ``found``, nothing more comes."""
        if not self._stops:
            return text
        if self.found is not None:
            return ""
        text = self._held + text
        places = [(text.index(stop), -len(stop), stop) for stop in self._stops if stop in text]
        if places:
            place, _, self.found = min(places)
            self._held = ""
            return text[:place]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back: no stop string came of it."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """The longest end of ``text`` that is the beginning of ``stop`` without being all of it."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
