"""``localllm perplexity``: how well a model predicts a text."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from localllm.chat.terminal import write_line
from localllm.cli.inputs import read_text
from localllm.cli.models import locate
from localllm.cli.options import model_options
from localllm.cli.progress import Progress

WINDOW = 512


@click.command(short_help="Measure how well a model predicts a text.")
@click.argument("model")
@click.argument("textfile")
@click.option("--chunks", type=click.IntRange(min=1), metavar="N", help="Only the first N windows.")
@model_options
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def command(model: str, textfile: str, chunks: int | None, load: dict[str, Any], as_json: bool) -> None:
    """Perplexity of MODEL on TEXTFILE ('-': standard input), by llama.cpp's protocol.

    The text is cut into windows of 512 tokens (-c), and the second half of each is scored. Lower is better.
    """
    import localllm
    from localllm.generation.perplexity import perplexity

    text = read_text(textfile)
    window = load.setdefault("ctx", WINDOW)
    with Progress() as progress:
        path = locate(model, progress)
        with localllm.load(path, progress=progress, **load) as loaded:
            result = perplexity(loaded, text, chunks=chunks, n_ctx=window, progress=progress)
    if as_json:
        write_line(json.dumps({**asdict(result), "chunks": len(result.per_chunk), "ctx": window}))
    else:
        write_line(f"perplexity {result.ppl:.4f} +/- {result.error:.4f} ({len(result.per_chunk)} windows of {window} tokens)")
