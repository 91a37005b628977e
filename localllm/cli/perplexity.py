"""``localllm perplexity``: how well a model predicts a text."""

from __future__ import annotations

import json
from contextlib import ExitStack
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
@click.option("--kl-against", metavar="TYPE", help="Compare with the same model whose keys and values are kept as TYPE, such as f16.")
@model_options
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def command(model: str, textfile: str, chunks: int | None, kl_against: str | None, load: dict[str, Any], as_json: bool) -> None:
    """Perplexity of MODEL on TEXTFILE ('-': standard input), by llama.cpp's protocol.

    The text is cut into windows of 512 tokens (-c), and the second half of each is scored. Lower is better.
    """
    import localllm
    from localllm.generation.perplexity import perplexity

    text = read_text(textfile)
    window = load.setdefault("ctx", WINDOW)
    with Progress() as progress, ExitStack() as models:
        path = locate(model, progress)
        loaded = models.enter_context(localllm.load(path, progress=progress, **load))
        if kl_against is not None:
            base = {**load, "cache_type_k": kl_against, "cache_type_v": kl_against}
            record, words = _divergence(
                models.enter_context(localllm.load(path, progress=progress, **base)), loaded, text, chunks, progress
            )
        else:
            result = perplexity(loaded, text, chunks=chunks, n_ctx=window, progress=progress)
            record = {**asdict(result), "chunks": len(result.per_chunk)}
            words = f"perplexity {result.ppl:.4f} +/- {result.error:.4f} ({len(result.per_chunk)} windows of {window} tokens)"
    write_line(json.dumps({**record, "ctx": window}) if as_json else words)


def _divergence(base: Any, loaded: Any, text: str, chunks: int | None, progress: Progress) -> tuple[dict[str, Any], str]:
    from localllm.generation.divergence import divergence
    from localllm.generation.perplexity import cut

    windows = cut(loaded.tokenizer, text, loaded.context, chunks)
    found = divergence(base, loaded, windows, progress)
    words = f"KL divergence {found.mean:.6f} +/- {found.error:.6f}, 99 % below {found.p99:.5f}, at most {found.largest:.5f}; "
    words += f"same likeliest token {found.same:.2%}; perplexity {found.ppl:.4f}, of the other {found.base_ppl:.4f} "
    words += f"({len(windows)} windows of {loaded.context} tokens)"
    return {**asdict(found), "chunks": len(windows)}, words
