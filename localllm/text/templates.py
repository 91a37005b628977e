"""Chat templates: Jinja, in its immutable sandbox, with what the templates of model files expect to find."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from localllm.errors import OptionError, TemplateError

if TYPE_CHECKING:
    import jinja2

MAX_OUTPUT = 16 << 20
"""The longest text, in characters, that a template may write."""


class ChatTemplate:
    """A chat template: messages in, the text that a model was trained to read out.

    ``bos_token``, ``eos_token`` and further ``variables`` are what the template sees under these names, unless ``render``
    gives others. ``is_default``: no template came with the model, this one is a guess.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "", is_default: bool = False, **variables: Any) -> None:
        self.source = source
        self.is_default = is_default
        self._variables: dict[str, Any] = {"bos_token": bos_token, "eos_token": eos_token, **variables}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | str | None = None,
        **variables: Any,
    ) -> str:
        """The text of a conversation; with ``add_generation_prompt`` it ends where the model's answer begins.

        ``now`` (a datetime, or one as ISO 8601) is what the template takes for the time. TemplateError if the template is
        broken, refuses the messages, or writes more than MAX_OUTPUT characters; OptionError for a ``now`` that is no time.
        """
        given = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt, "strftime_now": _clock(now)}
        try:
            return self._write({"documents": None, **self._variables, **variables, **given})
        except TemplateError:
            raise
        except Exception as error:  # a template can raise whatever Python can
            raise TemplateError(f"the chat template fails: {_one_line(error)}") from error

    def _write(self, variables: dict[str, Any]) -> str:
        parts: list[str] = []
        size = 0
        for part in self._compiled.generate(variables):
            size += len(part)
            if size > MAX_OUTPUT:
                raise TemplateError(f"the chat template writes more than {MAX_OUTPUT} characters; is it meant for chats?")
            parts.append(part)
        return "".join(parts)

    @cached_property
    def _compiled(self) -> jinja2.Template:
        return _environment().from_string(self.source)


def _clock(now: datetime | str | None) -> Any:
    try:
        moment = datetime.fromisoformat(now) if isinstance(now, str) else now
    except ValueError:
        raise OptionError(f"now={now!r}: a time as ISO 8601 was expected, such as 2026-01-15T12:34:56") from None
    return lambda format: (moment or datetime.now()).strftime(format)


def _one_line(error: Exception) -> str:
    message = " ".join(str(error).split())[:500]
    line = getattr(error, "lineno", None)
    return (message or type(error).__name__) + (f" (line {line})" if line else "")


def _raise_exception(message: object) -> None:
    raise TemplateError(f"the chat template refuses this conversation: {' '.join(str(message).split())}")


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@cache
def _environment() -> jinja2.Environment:
    """The environment that all templates share: block trimming as transformers sets it, loop controls, the generation tag."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what the assistant wrote, for training; here it is its content."""

        tags = {"generation"}  # noqa: RUF012 (jinja2 reads it as it is)

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment
