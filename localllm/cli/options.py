"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def model_options(command: Command) -> Command:
    """How a model is loaded: --backend, --threads, --ctx, --force. They arrive together as ``load``, keywords of localllm.load."""

    @click.option("-t", "--threads", type=int, metavar="N", help="Threads; one per physical core if not given.")
    @click.option("-c", "--ctx", type=int, metavar="N", help="Tokens that the context holds; what the model was trained for if not given.")
    @click.option("--backend", metavar="NAME", help="auto, cpu or reference.")
    @click.option("--force", is_flag=True, default=None, help="Load even if it seems not to fit into memory.")
    @functools.wraps(command)
    def wrapped(threads: int | None, ctx: int | None, backend: str | None, force: bool | None, **others: Any) -> Any:
        given = {"threads": threads, "ctx": ctx, "backend": backend, "force": force}
        return command(load={name: value for name, value in given.items() if value is not None}, **others)

    return wrapped


def sampling_options(command: Command) -> Command:
    """How an answer is made. They arrive under the names that ``Model.generate`` has for them, None where not given."""
    for option in reversed(
        (
            click.option("-n", "--max-tokens", "max_tokens", type=int, metavar="N", help="At most N tokens."),
            click.option("--temp", "temperature", type=float, metavar="T", help="Temperature; 0 always takes the likeliest token."),
            click.option("--top-k", type=int, metavar="K", help="Choose among the K likeliest tokens (0: all)."),
            click.option("--top-p", type=float, metavar="P", help="Choose among the likeliest that together reach P."),
            click.option("--min-p", type=float, metavar="P", help="Choose among those at least P times as likely as the likeliest."),
            click.option("--seed", type=int, metavar="N", help="The same seed gives the same answer."),
            click.option("--stop", multiple=True, callback=_none_if_empty, metavar="TEXT", help="End before TEXT; can be repeated."),
        )
    ):
        command = option(command)
    return command


def speculation_options(command: Command) -> Command:
    """Guessing ahead: --spec, an option of ``Model.generate``, and --draft, one of localllm.load."""
    where = "Where guesses of several tokens at once come from: auto, off, ngram (the text itself) or draft. They change the speed alone."
    for option in (
        click.option("--spec", metavar="HOW", help=where),
        click.option("--draft", metavar="MODEL", help="A smaller model with the same vocabulary that guesses ahead."),
    ):
        command = option(command)
    return command


def _none_if_empty(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...] | None:
    return value or None
