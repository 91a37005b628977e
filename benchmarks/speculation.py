"""How much faster answers come with guesses: plain decoding and each way of guessing, a few tokens in turn, texts compared."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

import localllm
from localllm.backends.cpu.target import current
from localllm.generation.results import Result
from localllm.generation.stream import Stream

PROMPTS = Path(__file__).with_name("prompts")
RESULTS = Path(__file__).with_name("results") / "speculation.json"
PLAIN = "off"
TURN = 8
"""Tokens of one answer before it is the turn of the next."""


@dataclass
class Measured:
    """Of one way of guessing: speeds of all rounds in tokens a second after the first token, seconds from the question to the last token,
    and what was guessed in the last round."""

    tps: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    estimated_plain: list[float] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """One more round."""
        timings, guessed = result.timings, result.speculation
        self.tps.append(timings.completion_per_second)
        self.seconds.append(timings.prompt_seconds + timings.completion_seconds)
        if guessed is not None:
            self.drafted, self.accepted = guessed.drafted, guessed.accepted
            self.estimated_plain.append(guessed.plain_per_second)


def ask(model: localllm.Model, prompt: Path, spec: str, options: Mapping[str, Any]) -> Stream:
    """An answer, guessed without what other ones have taught. A completion goes on with the file, without its last line end; others are
    messages."""
    text = prompt.read_text(encoding="utf-8")
    raw = prompt.stem.startswith("completion")
    model.speculation = model.speculation.anew()
    stream: Stream = model.stream(text.removesuffix("\n") if raw else text, raw=raw, spec=spec, **options)
    return stream


def side_by_side(streams: Mapping[str, Stream]) -> dict[str, Result]:
    """The results of answers that are made in turn, a few tokens each, so that what the machine does besides slows all of them."""
    going = dict(streams)
    while going:
        for way, stream in list(going.items()):
            for _ in range(TURN):
                if next(stream, None) is None:
                    going.pop(way)
                    break
    return {way: stream.result for way, stream in streams.items()}


def measure(
    model: localllm.Model, prompt: Path, ways: Sequence[str], rounds: int, options: Mapping[str, Any], known: Mapping[str, Any]
) -> dict[str, Any]:
    """Plain decoding and each way, in turn. ``known``: what earlier rounds have found. Raises ClickException where a text differs."""
    found = {way: Measured(**known.get("ways", {}).get(way, {})) for way in (PLAIN, *ways)}
    ask(model, prompt, PLAIN, {**options, "max_tokens": 4}).run()  # memory is touched for the first time
    for _ in range(rounds):
        results = side_by_side({way: ask(model, prompt, way, options) for way in found})
        plain = results[PLAIN]
        for way, result in results.items():
            if result.tokens != plain.tokens or known.get("text", plain.text) != plain.text:
                raise click.ClickException(f"{prompt.stem}: the text with {way!r} is another one")
            found[way].add(result)
    return {
        "prompt_tokens": plain.usage.prompt_tokens,
        "tokens": plain.usage.completion_tokens,
        "text": plain.text,
        "ways": {way: asdict(each) for way, each in found.items()},
    }


def table(results: Mapping[str, Any]) -> str:
    """Markdown: a row for each prompt and way."""
    lines = [
        f"{results['model']}, draft {results['draft']}, {results['machine']}, {results['threads']} threads, {results['options']}.",
        "Medians of the rounds, tokens a second; texts are identical. The estimate is that of the guessing run, of the speed without.",
        "",
        "| prompt | tokens | plain | guesses | with | times plain | times plain, prompt included | right | plain, as estimated |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for prompt, found in sorted(results["prompts"].items()):
        plain = found["ways"][PLAIN]
        for way, each in found["ways"].items():
            if way != PLAIN:
                lines.append(_row(prompt, found, way, each, plain))
    return "\n".join(lines) + "\n"


def _row(prompt: str, found: Mapping[str, Any], way: str, each: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    median = statistics.median
    share = f"{each['accepted']}/{each['drafted']}" if each["drafted"] else "–"
    before, after = median(plain["tps"]), median(each["tps"])
    whole = median(plain["seconds"]) / median(each["seconds"])
    return (
        f"| {prompt} | {found['prompt_tokens']} + {found['tokens']} | {before:.1f} | {way} | {after:.1f} "
        f"| {after / before:.2f} | {whole:.2f} | {share} | {median(each['estimated_plain']):.1f} |"
    )


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--draft", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Also measure this draft, alone and with n-grams."
)
@click.option("-p", "--prompt", "names", multiple=True, help="Names of prompts; all if not given.")
@click.option("-w", "--way", "ways", multiple=True, help="ngram, draft or auto; all that can be if not given.")
@click.option("-t", "--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("-r", "--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("-n", "--max-tokens", type=click.IntRange(min=2), default=256, show_default=True)
@click.option("--temp", type=float, default=0.0, show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=RESULTS,
    help="JSON; a table goes beside it. Rounds are added to those that it holds.",
)
def main(
    model: Path,
    draft: Path | None,
    names: Sequence[str],
    ways: Sequence[str],
    threads: int,
    rounds: int,
    max_tokens: int,
    temp: float,
    output: Path,
) -> None:
    options = {"temperature": temp, "seed": 1, "max_tokens": max_tokens}
    results: dict[str, Any] = {
        "model": model.name,
        "draft": draft.name if draft else None,
        "machine": f"{platform.machine()}, {current().name}",
        "threads": threads,
        "options": options,
        "prompts": {},
    }
    if output.exists():
        known = json.loads(output.read_text(encoding="utf-8"))
        if {**known, "prompts": {}} != results:
            raise click.ClickException(f"{output} holds results of something else; give another -o")
        results = known
    prompts = [PROMPTS / f"{name}.txt" for name in names] or sorted(PROMPTS.glob("*.txt"))
    chosen = ways or (("ngram", "draft", "auto") if draft else ("ngram",))
    for prompt in prompts:
        # Loaded anew for each prompt: nothing that was learnt from one text helps with another.
        with localllm.load(model, threads=threads, ctx=4096, draft=draft) as loaded:
            known = results["prompts"].get(prompt.stem, {})
            results["prompts"][prompt.stem] = measure(loaded, prompt, chosen, rounds, options, known)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        output.with_suffix(".md").write_text(table(results), encoding="utf-8")
    click.echo(table(results))


if __name__ == "__main__":
    main()
