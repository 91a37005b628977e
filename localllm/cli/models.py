"""From the MODEL argument to a file, with what a person should know before it is fetched."""

from __future__ import annotations

from pathlib import Path

import click

from localllm import store
from localllm.cli.progress import Progress


def locate(name: str, progress: Progress) -> Path:
    """The model's file, fetched if need be: its size and licence are said first.

    Raises ModelNotFoundError and what else ``store.resolve`` raises.
    """
    found = store.lookup(name)
    if isinstance(found, Path) or found.name in store.cached():
        return store.resolve(name)
    click.echo(f"{found.name}: {found.about}, {found.size / 1e6:,.0f} MB, licence: {found.licence} ({found.licence_url})", err=True)
    try:
        return store.resolve(name, progress)
    except KeyboardInterrupt:
        click.echo("interrupted; the parts that arrived are kept, and the next try goes on from there", err=True)
        raise
