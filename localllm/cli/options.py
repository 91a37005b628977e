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
