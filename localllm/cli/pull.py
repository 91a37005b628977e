"""``localllm pull``: fetch a model into the cache."""

from __future__ import annotations

import click

from localllm import store
from localllm.chat.terminal import write_line
from localllm.cli.models import locate
from localllm.cli.progress import Progress
from localllm.store.entries import unknown


@click.command(short_help="Fetch a model.")
@click.argument("model")
def command(model: str) -> None:
    """Fetch MODEL, a name that 'localllm list' shows, unless it is there; its path is the output.

    What breaks off goes on where it was. The file is checked by its SHA-256.
    """
    entry = store.find(model)
    if entry is None:
        raise unknown(model)
    with Progress() as progress:
        path = locate(entry.name, progress)
    write_line(str(path))
