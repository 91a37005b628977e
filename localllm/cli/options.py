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


def speculation_options(command: Command) -> Command:
    """Guessing ahead: --spec, an option of ``Model.generate``, and --draft, one of localllm.load."""
    where = "Where guesses of several tokens at once come from: auto, off, ngram (the text itself) or draft. They change the speed alone."
    for option in (
        click.option("--spec", metavar="HOW", help=where),
        click.option("--draft", metavar="MODEL", help="A smaller model with the same vocabulary that guesses ahead."),
    ):
        command = option(command)
    return command
