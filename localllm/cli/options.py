"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from localllm.generation.full import POLICIES

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


def context_options(command: Command) -> Command:
    """What happens when the context is full: --on-full, --keep, under the names that ``Model.generate`` has for them."""
    for option in (
        click.option("--keep", type=int, metavar="N", help="Tokens of the prompt's beginning that --on-full shift keeps; -1: all of it."),
        click.option(
            "--on-full",
            "on_full",
            type=click.Choice(POLICIES),
            help="When the context is full: refuse the prompt (error), end (stop), or drop the oldest tokens or turns and go on.",
        ),
    ):
        command = option(command)
    return command


def cache_options(command: Command) -> Command:
    """Where earlier prompts are kept: --cache-ram, --cache-disk. They join ``load``; to be applied below ``model_options``."""

    @click.option("--cache-ram", type=int, metavar="MIB", help="Memory for earlier prompts, which later ones continue; 0: none.")
    @click.option("--cache-disk", type=int, metavar="MIB", help="Room on disk for long prompts, for later runs; 0: none.")
    @functools.wraps(command)
    def wrapped(load: dict[str, Any], cache_ram: int | None, cache_disk: int | None, **others: Any) -> Any:
        given = {"cache_ram": cache_ram, "cache_disk": cache_disk}
        return command(load={**load, **{name: value for name, value in given.items() if value is not None}}, **others)

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
