"""What generation needs of a tokenizer and of a chat template, and what can be learnt from any tokenizer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from localllm.text.vocab import CONTROL, UNKNOWN

if TYPE_CHECKING:
    from localllm.text import Tokenizer

Message = Mapping[str, Any]
"""A turn of a conversation: {"role": ..., "content": ...}, and what else the template reads."""


class Decoder(Protocol):
    """Turns ids into text as they come; never half a character."""

    def push(self, token: int, /) -> str: ...

    def flush(self) -> str: ...


class Vocabulary(Protocol):
    """A tokenizer. ``eog``: the ids that end generation."""

    @property
    def eog(self) -> Collection[int]: ...

    def encode(self, text: str, /, *, add_special: bool = True, parse_special: bool = False) -> list[int]: ...

    def stream(self) -> Decoder: ...


class Template(Protocol):
    """Turns a conversation into the text that the model was trained on."""

    def render(self, messages: Sequence[Message], /, *, add_generation_prompt: bool) -> str: ...


def control_texts(tokenizer: Tokenizer) -> list[str]:
    """The texts that are tokens only where special ones are asked for."""
    vocab = tokenizer.vocab
    return [vocab.tokens[n].decode("utf-8", "replace") for n in vocab.with_attr(CONTROL | UNKNOWN)]


def leading(vocabulary: Vocabulary) -> list[int]:
    """The ids that the tokenizer puts before every text: [BOS], or none."""
    plain = vocabulary.encode("a", add_special=False)
    full = vocabulary.encode("a", add_special=True)
    start = next((n for n in range(len(full)) if full[n : n + len(plain)] == plain), 0)
    return full[:start]
