"""``localllm show``: what is in a model file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from localllm.chat.terminal import write, write_line
from localllm.cli.models import locate
from localllm.cli.progress import Progress
from localllm.errors import LocalLLMError

if TYPE_CHECKING:
    from localllm.gguf import GGUFFile, Tensor

LONGEST_TEXT, LONGEST_LIST = 100, 8
"""Characters of a text and elements of a list that are shown."""
LONGEST_JSON = 64
"""Elements of a list that are in the JSON whole; of a longer one there are its beginning and its length."""


@click.command(short_help="Show a model's metadata, tensors and need of memory.")
@click.argument("model")
@click.option("--tensors", "each", is_flag=True, help="Every tensor: name, type and shape.")
@click.option("--backend", default="auto", metavar="NAME", help="Whose need of memory: auto, cpu or reference.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(model: str, each: bool, backend: str, as_json: bool) -> None:
    """Show what is in MODEL: metadata, tensors by type with their sizes, and the memory it will need."""
    import localllm

    with Progress() as progress:
        path = locate(model, progress)
    with localllm.open_gguf(path) as file:
        if as_json:
            write(json.dumps(_record(file, backend, each), ensure_ascii=False, indent=2) + "\n")
            return
        write_line(f"{path}: GGUF version {file.version}" + (f", {len(file.paths)} files" if len(file.paths) > 1 else ""))
        _show_metadata(file.metadata)
        _show_types(file.tensors)
        _show_sampling(file.metadata)
        _show_memory(file, backend)
        if each:
            _show_tensors(file.tensors)


def _show_metadata(metadata: Mapping[str, Any]) -> None:
    write_line()
    width = max(map(len, metadata), default=0)
    for key, value in metadata.items():
        write_line(f"{key:<{width}}  {_short(value)}")


def _show_types(tensors: Mapping[str, Tensor]) -> None:
    write_line()
    types = _by_type(tensors)
    for type_, (count, values, nbytes) in types.items():
        write_line(f"{type_:<8} {count:>5} tensors {values / 1e6:>10,.1f} M values {nbytes / 1e6:>10,.1f} MB")
    count, values, nbytes = (sum(row[i] for row in types.values()) for i in range(3))
    write_line(f"{'in all':<8} {count:>5} tensors {values / 1e6:>10,.1f} M values {nbytes / 1e6:>10,.1f} MB")


def _show_sampling(metadata: Mapping[str, Any]) -> None:
    from localllm.generation.recommended import recommended

    found = recommended(metadata)
    if found:
        write_line()
        write_line(f"sampling: {', '.join(f'{name} {_short(value)}' for name, value in found.items())} (recommended by the file)")


def _show_memory(file: GGUFFile, backend: str) -> None:
    write_line()
    found = _memory(file, backend)
    if "error" in found:
        write_line(f"memory: not known: {found['error']}")
        return
    write_line(f"memory: {found['weights'] / 1e6:,.0f} MB for the weights (backend {found['backend']})")
    write_line(
        f"        {found['per_token'] / 1e3:,.1f} kB for each token of the context, "
        f"{found['cache'] / 1e6:,.0f} MB for all {found['context']:,}"
    )


def _show_tensors(tensors: Mapping[str, Tensor]) -> None:
    write_line()
    width = max(map(len, tensors), default=0)
    for name, tensor in tensors.items():
        write_line(f"{name:<{width}}  {tensor.type:<8} {' x '.join(map(str, tensor.shape))}")


def _by_type(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    """Type -> [tensors, values, bytes], the largest first."""
    types: dict[str, list[int]] = {}
    for tensor in tensors.values():
        row = types.setdefault(tensor.type, [0, 0, 0])
        row[0] += 1
        row[1] += math.prod(tensor.shape)
        row[2] += tensor.nbytes
    return dict(sorted(types.items(), key=lambda item: -item[1][2]))


def _memory(file: GGUFFile, backend: str) -> dict[str, Any]:
    """The footprint, or why it is not known: a file that can't be run can still be looked at."""
    from localllm.footprint import footprint

    try:
        found = footprint(file, backend)
    except LocalLLMError as error:
        return {"error": str(error)}
    sizes = {"weights": found.weights, "per_token": found.per_token, "context": found.context, "cache": found.cache(found.context)}
    return {"backend": found.backend, **sizes}


def _record(file: GGUFFile, backend: str, each: bool) -> dict[str, Any]:
    from localllm.generation.recommended import recommended

    record: dict[str, Any] = {
        "files": [str(path) for path in file.paths],
        "version": file.version,
        "metadata": {key: _plain(value) for key, value in file.metadata.items()},
        "types": {type_: dict(zip(("tensors", "values", "bytes"), row, strict=True)) for type_, row in _by_type(file.tensors).items()},
        "sampling": recommended(file.metadata),
        "memory": _memory(file, backend),
    }
    if each:
        record["tensors"] = {name: {"type": tensor.type, "shape": tensor.shape} for name, tensor in file.tensors.items()}
    return record


def _short(value: Any) -> str:
    """A value in one line: a text's beginning, a list's first elements and its length."""
    if isinstance(value, str):
        shown = value[:LONGEST_TEXT].replace("\r", "\\r").replace("\n", "\\n")
        return shown if len(value) <= LONGEST_TEXT else f"{shown}... ({len(value):,} characters)"
    if not hasattr(value, "__len__"):
        return str(value)
    shown = ", ".join(repr(item) if isinstance(item, str) else str(item) for item in value[:LONGEST_LIST])
    return f"[{shown}]" if len(value) <= LONGEST_LIST else f"[{shown}, ...] ({len(value):,})"


def _plain(value: Any) -> Any:
    """A value as JSON can have it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return value
    first = value[:LONGEST_JSON]
    items = [_plain(item) for item in (first.tolist() if hasattr(first, "tolist") else first)]
    return items if len(value) <= LONGEST_JSON else {"length": len(value), "first": items}
