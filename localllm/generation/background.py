"""Values that are made beside other work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """A value that a thread makes from now on."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="localllm-background")
        self._thread.start()

    def get(self) -> T:
        """The value, waited for; raises what its making raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value[0]

    def wait(self) -> None:
        """Until the thread is done, whatever came of it."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._value.append(self._make())
        except BaseException as error:
            self._error = error
