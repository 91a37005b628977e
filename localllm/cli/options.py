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
