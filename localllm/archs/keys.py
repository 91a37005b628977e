"""Reading a model's metadata: each value is checked for its type and range, in Python numbers, before anything is built from it."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from localllm.errors import GGUFError, UnsupportedError
from localllm.model.weights import ModelFile, brief, label

MOST = 2**31 - 1
TINY, HUGE = 1e-30, 1e30


class Keys:
    """Metadata of a file under its architecture: ``keys.count("block_count")`` reads "llama.block_count".

    A default of None makes a key obligatory. All raise GGUFError, which names the file, the key, its value and what was expected.
    """

    def __init__(self, file: ModelFile) -> None:
        self.file = file
        architecture = file.metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise GGUFError(f"{label(file)}: metadata key 'general.architecture' is {brief(architecture)}, expected a name such as 'llama'")
        self.architecture = architecture

    def __contains__(self, key: str) -> bool:
        return self._name(key) in self.file.metadata

    def count(self, key: str, default: int | None = None, *, low: int = 1, high: int = MOST) -> int:
        """A whole number from ``low`` to ``high``."""
        return self._whole(key, self._get(key, default), low, high)

    def counts(self, key: str, layers: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A whole number above zero for each layer: the file gives one for all, or a list."""
        value = self._get(key, default)
        values = [value] * layers if isinstance(value, int) else self._list(key, value, layers)
        return tuple(self._whole(key, item, 1, MOST) for item in values)

    def flags(self, key: str, layers: int) -> tuple[bool, ...]:
        """True or false for each layer, from a list."""
        values = self._list(key, self._get(key, None), layers)
        return tuple(bool(self._whole(key, int(item) if isinstance(item, bool) else item, 0, 1)) for item in values)

    def number(self, key: str, default: float | None = None, *, zero: bool = False) -> float:
        """A number above zero (``zero``: or zero) that is neither infinite nor absurd."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not (TINY <= value <= HUGE or (zero and value == 0)):
            self.fail(key, value, f"a number from {TINY:g} to {HUGE:g}" + (", or 0" if zero else ""))
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            self.fail(key, value, "a string")
        return value

    def is_list(self, key: str) -> bool:
        """Whether the file has a list there."""
        return isinstance(self.file.metadata.get(self._name(key)), (np.ndarray, list))

    def refuse(self, key: str, *, unless: bool | int | str) -> None:
        """UnsupportedError if the key is there with another value than ``unless``: what it asks for is not implemented."""
        value = self.file.metadata.get(self._name(key), unless)
        if not isinstance(value, (bool, int, float, str)) or value != unless:
            raise UnsupportedError(f"{label(self.file)}: metadata key {self._name(key)!r} is {brief(value)}; only {unless!r} is supported")

    def fail(self, key: str, value: object, expected: str) -> NoReturn:
        """GGUFError about the value of a key."""
        raise GGUFError(f"{label(self.file)}: metadata key {self._name(key)!r} is {brief(value)}, expected {expected}")

    def _name(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def _get(self, key: str, default: Any) -> Any:
        value = self.file.metadata.get(self._name(key), default)
        if value is None:
            raise GGUFError(f"{label(self.file)}: metadata key {self._name(key)!r} is missing; the model can't be built without it")
        return value

    def _whole(self, key: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.fail(key, value, f"a whole number from {low}" + (f" to {high}" if high < MOST else ""))
        return int(value)

    def _list(self, key: str, value: Any, layers: int) -> list[Any]:
        items = list(value) if isinstance(value, tuple) else []
        if isinstance(value, (np.ndarray, list)):
            items = np.asarray(value[: layers + 1], dtype=object).tolist()
        if len(items) != layers:
            self.fail(key, value, f"a list of {layers}, one for each layer")
        return items
