"""``localllm list``: the models that have a name."""

from __future__ import annotations

import json
from pathlib import Path

import click

from localllm import store
from localllm.chat.terminal import write, write_line


@click.command(short_help="Show the models that have a name, and which are here.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json: bool) -> None:
    """Show the models that have a name, their size and licence, and where those that are here lie."""
    cached = store.cached()
    if as_json:
        write(json.dumps([_record(entry, cached.get(entry.name)) for entry in store.catalogue()], indent=2) + "\n")
        return
    rows = [("NAME", "SIZE", "LICENCE", "WHERE")]
    for entry in store.catalogue():
        rows.append((entry.name, f"{entry.size / 1e6:,.0f} MB", entry.licence, str(cached.get(entry.name, "not fetched"))))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, size, licence, where in rows:
        write_line(f"{name:<{widths[0]}}  {size:>{widths[1]}}  {licence:<{widths[2]}}  {where}")


def _record(entry: store.Entry, path: Path | None) -> dict[str, object]:
    return {
        "name": entry.name,
        "about": entry.about,
        "bytes": entry.size,
        "licence": entry.licence,
        "licence_url": entry.licence_url,
        "sha256": entry.sha256,
        "path": str(path) if path else None,
    }
