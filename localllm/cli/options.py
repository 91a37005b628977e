"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def model_options(command: Command) -> Command:
    """How a model is loaded: --backend, --threads, --ctx, --cache-type-k, --cache-type-v, --force. They arrive together as ``load``,
    keywords of localllm.load."""

    @click.option("-t", "--threads", type=int, metavar="N", help="Threads; one per physical core if not given.")
    @click.option("-c", "--ctx", type=int, metavar="N", help="Tokens that the context holds; what the model was trained for if not given.")
    @click.option("--backend", metavar="NAME", help="auto, cpu or reference.")
    @click.option("-ctk", "--cache-type-k", metavar="TYPE", help="What keys are kept as: f16 (if not given), q8_0, q4_0 or f32.")
    @click.option("-ctv", "--cache-type-v", metavar="TYPE", help="The same for values.")
    @click.option("--force", is_flag=True, default=None, help="Load even if it seems not to fit into memory.")
    @functools.wraps(command)
    def wrapped(
        threads: int | None,
        ctx: int | None,
        backend: str | None,
        cache_type_k: str | None,
        cache_type_v: str | None,
        force: bool | None,
        **others: Any,
    ) -> Any:
        given = {"threads": threads, "ctx": ctx, "backend": backend, "force": force}
        given |= {"cache_type_k": cache_type_k, "cache_type_v": cache_type_v}
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


def _none_if_empty(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...] | None:
    return value or None
