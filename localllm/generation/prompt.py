"""From what a person says to ids. Texts of control tokens that a person writes stay text.

The control tokens of a chat template must be read as such, those in the messages must not, and a template may trim, reorder or
split messages. So what looks like a control token in a message is replaced by a mark before rendering; the rendered text is cut
at the control tokens that it then holds, which are the template's, and each piece between them gets its marked texts back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any, cast

from localllm.errors import OptionError, TemplateError
from localllm.generation.options import GenerationOptions
from localllm.generation.vocabulary import Message, Template, Vocabulary, leading

Prompt = str | Sequence[Message] | Sequence[int]
"""A user's message (or with ``raw`` a text to continue), a conversation, or ids as they are."""

_MARK = "\ufdd0"
"""A code point that Unicode keeps for internal use."""
_MARKED = re.compile(f"{_MARK}([0-9]+){_MARK}")


class Controls:
    """The texts of a vocabulary's control tokens, to be found in other texts. ``texts`` is called when they are first looked for."""

    def __init__(self, texts: Callable[[], Iterable[str]]) -> None:
        self._get = texts

    def within(self, text: str) -> list[str]:
        """Those that occur in a text, longest first."""
        return [each for each in self._texts if each in text] if not self._firsts.isdisjoint(text) else []

    @cached_property
    def _texts(self) -> list[str]:
        return sorted(filter(None, self._get()), key=len, reverse=True)

    @cached_property
    def _firsts(self) -> set[str]:
        # Most messages hold none of these characters, and then thousands of texts need not be looked for.
        return {text[0] for text in self._texts}


def encode(
    prompt: Prompt, options: GenerationOptions, vocabulary: Vocabulary, template: Callable[[], Template | None], controls: Controls
) -> list[int]:
    """The ids of a prompt. ``template`` is called where one is needed.

    A model without a chat template continues a string as it is. Raises OptionError for what is no prompt, TemplateError for a
    conversation without a template or a template that fails.
    """
    if isinstance(prompt, str):
        chosen = None if options.raw else template()
        if chosen is None:
            return vocabulary.encode(prompt, add_special=True, parse_special=options.parse_special)
        return conversation([{"role": "user", "content": prompt}], vocabulary, chosen, controls)
    messages = _messages(prompt)
    if messages is None:
        return [int(token) for token in cast("Sequence[int]", prompt)]
    if options.raw:
        raise OptionError("option 'raw' is for a string; a conversation needs the chat template")
    chosen = template()
    if chosen is None:
        raise TemplateError("the model has no chat template; give it a string to continue, or take a model made for conversations")
    return conversation(messages, vocabulary, chosen, controls)


def conversation(messages: Sequence[Message], vocabulary: Vocabulary, template: Template, controls: Controls) -> list[int]:
    """The ids of a conversation up to where the model answers; what the tokenizer puts first is there once."""
    said = "\n".join(_strings(messages))
    hidden = controls.within(said)
    if hidden or _MARK in said:
        ids = _protected(messages, [*hidden, _MARK], vocabulary, template, controls)
    else:
        ids = vocabulary.encode(template.render(messages, add_generation_prompt=True), add_special=False, parse_special=True)
    first = leading(vocabulary)
    return ids if ids[: len(first)] == first else first + ids


def _protected(
    messages: Sequence[Message], secret: Sequence[str], vocabulary: Vocabulary, template: Template, controls: Controls
) -> list[int]:
    hidden: list[str] = []

    def hide(match: re.Match[str]) -> str:
        hidden.append(match[0])
        return f"{_MARK}{len(hidden) - 1}{_MARK}"

    pattern = _any_of(secret)
    text = template.render(_mapped(messages, lambda each: pattern.sub(hide, each)), add_generation_prompt=True)
    ids: list[int] = []
    for n, piece in enumerate(_any_of(controls.within(text)).split(text)):
        if n % 2:
            ids += vocabulary.encode(piece, add_special=False, parse_special=True)
        elif piece:
            ids += vocabulary.encode(_MARKED.sub(lambda match: hidden[int(match[1])], piece), add_special=False)
    return ids


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    """Matches the first of the texts that fits at a place; one group, so that ``split`` keeps it."""
    return re.compile(f"({'|'.join(map(re.escape, texts)) or '(?!)'})")


def _messages(prompt: Any) -> Sequence[Message] | None:
    """The conversation that a prompt is, or None where it is ids."""
    if isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], Mapping):
        for n, message in enumerate(prompt):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise OptionError(f"message {n} of the conversation is {message!r:.80}; expected {{'role': ..., 'content': ...}}")
        return prompt
    if (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, bytes)
        and all(isinstance(token, Integral) and not isinstance(token, bool) for token in prompt)
    ):
        return None
    raise OptionError(f"the prompt is {prompt!r:.80}; expected a string, a list of messages, or a list of ids")


def _strings(value: Any) -> Iterator[str]:
    """Every string in a message, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _strings(inner)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The same value with every string changed, but for the keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(inner, change) for key, inner in value.items()}
    return [_mapped(inner, change) for inner in value] if isinstance(value, Sequence) else value
