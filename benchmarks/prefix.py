"""How much sooner the first token comes where a prompt was computed before: in memory, and in a new process from disk."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np

import localllm
from localllm.store import folders


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-t", "--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("-p", "--prompt", type=click.IntRange(min=100), default=3000, show_default=True, help="Tokens of the prompt.")
@click.option("--lines", type=click.Path(file_okay=False, path_type=Path), hidden=True)
def main(model: Path, threads: int, prompt: int, lines: Path | None) -> None:
    if lines is not None:
        folders.kv_folder = lambda: lines
        click.echo(" ".join(f"{cache}={seconds}" for cache, seconds in first_tokens(model, threads, prompt, 2)))
        return
    with tempfile.TemporaryDirectory() as folder:
        # Compiled kernels stay where they are; lines are kept where nothing is yet.
        command = [sys.executable, __file__, str(model), "-t", str(threads), "-p", str(prompt), "--lines", folder]
        (_, fresh), (memory, second) = _run(command)
        (disk, third), _ = _run(command)
    if (memory, disk) != ("memory", "disk"):
        raise click.ClickException(f"expected a hit in memory and on disk, found {memory!r} and {disk!r}")
    click.echo(f"{model.name}, {threads} threads, {prompt} tokens: first token after {fresh:.2f} s")
    click.echo(f"again, from memory: {second:.3f} s, {fresh / second:.0f} times as soon")
    click.echo(f"in a new process, from disk: {third:.3f} s, {fresh / third:.0f} times as soon")


def first_tokens(path: Path, threads: int, prompt: int, times: int) -> list[tuple[str, float]]:
    """Seconds until the first token of one prompt, asked for so many times, and where it was found."""
    found = []
    with localllm.load(path, threads=threads, ctx=prompt + 16) as model:
        tokens = np.random.default_rng(0).integers(0, model.program.vocab, prompt).tolist()
        for _ in range(times):
            started = time.perf_counter()
            with model.stream(tokens, max_tokens=4, ignore_eos=True) as events:
                next(events)
                seconds = time.perf_counter() - started
                found.append((events.run().usage.cache.split()[0], seconds))
    return found


def _run(command: list[str]) -> list[tuple[str, float]]:
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    pairs = [pair.split("=") for pair in ran.stdout.split()]
    return [(cache, float(seconds)) for cache, seconds in pairs]


if __name__ == "__main__":
    main()
