"""What a few tokens at once cost, with the logits after each: T(m)/T(1), on which guessing ahead lives."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import click
import numpy as np

import localllm

SIZES = (1, 2, 4, 8)


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-t", "--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("-d", "--depth", type=click.IntRange(min=1), default=64, show_default=True, help="Tokens that stand in the context before.")
@click.option("-r", "--rounds", type=click.IntRange(min=1), default=20, show_default=True)
def main(model: Path, threads: int, depth: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    times: dict[int, list[float]] = {m: [] for m in SIZES}
    with localllm.load(model, threads=threads, ctx=depth + (rounds + 2) * sum(SIZES)) as loaded, loaded.line() as line:
        line.feed(rng.integers(0, loaded.program.vocab, depth).tolist())
        for done in range(rounds + 2):
            for m in SIZES:
                tokens = rng.integers(0, loaded.program.vocab, m).tolist()
                started = time.perf_counter()
                line.feed(tokens, last=m)
                if done >= 2:
                    times[m].append(time.perf_counter() - started)
    typical = {m: statistics.median(seconds) for m, seconds in times.items()}
    click.echo(f"{model.name}, {threads} threads, behind {depth} tokens, median of {rounds} rounds in turn")
    for m, seconds in typical.items():
        click.echo(f"T({m}) = {1e3 * seconds:7.2f} ms   T({m})/T(1) = {seconds / typical[1]:.2f}")


if __name__ == "__main__":
    main()
