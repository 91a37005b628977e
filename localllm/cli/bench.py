"""``localllm bench``: how fast a model runs here."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from localllm.chat.terminal import write_line
from localllm.cli.models import locate
from localllm.cli.options import model_options
from localllm.cli.progress import Progress
from localllm.errors import OptionError

if TYPE_CHECKING:
    from localllm.bench import Figure, Machine, Report


@click.command(short_help="Measure how fast a model runs here.")
@click.argument("model")
@click.option(
    "-p", "--prompt", type=click.IntRange(min=0), default=512, show_default=True, metavar="N", help="Tokens of the prompt; 0: none."
)
@click.option("-n", "--decode", type=click.IntRange(min=0), default=64, show_default=True, metavar="N", help="Tokens one by one; 0: none.")
@click.option("-d", "--depth", type=click.IntRange(min=0), default=0, metavar="N", help="Tokens that stand in the context before.")
@click.option("-r", "--repeats", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="How often each is timed.")
@click.option("--profile", is_flag=True, help="Show where the time of a prompt and of a token goes.")
@model_options
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def command(model: str, prompt: int, decode: int, depth: int, repeats: int, profile: bool, load: dict[str, Any], as_json: bool) -> None:
    """Time MODEL, and compare with what this machine can do at most.

    pp512 is a prompt of 512 tokens, tg64 are 64 tokens one by one; medians and extremes of several rounds.
    """
    from localllm.bench import bench

    if not prompt and not decode:
        raise OptionError("--prompt 0 and --decode 0 leave nothing to time; leave one of them out")
    with Progress() as progress:
        path = locate(model, progress)
        report = bench(str(path), prompt=prompt, decode=decode, depth=depth, repeats=repeats, profile=profile, progress=progress, **load)
    if as_json:
        write_line(json.dumps({name: value for name, value in asdict(report).items() if value != {}}))
    else:
        for line in describe(report):
            write_line(line)


def describe(report: Report) -> list[str]:
    """The report in words."""
    lines = [f"{report.model}, {report.threads} threads"]
    if report.machine:
        lines.append(
            f"this machine reads {report.machine.read_gbps:.1f} GB/s and multiplies {report.machine.int8_gmacs:.0f} GMAC/s of bytes"
        )
    for figure in report.results:
        lines.append(
            f"{figure.test:>12} {figure.tps:9.1f} tokens/s ({figure.tps_min:.1f} to {figure.tps_max:.1f})   "
            f"{figure.gbps:6.1f} GB/s   {figure.gmacs:7.1f} GMAC/s"
        )
    lines += [_bound(figure, report.machine) for figure in report.results if report.machine]
    for test, shares in report.profile.items():
        lines.append(f"{test}, in one go with {report.threads} threads:")
        lines += [f"  {1e3 * seconds:9.2f} ms  {kind}" for kind, seconds in shares.items()]
    return lines


def _bound(figure: Figure, machine: Machine) -> str:
    read, multiply = figure.gbps / machine.read_gbps, figure.gmacs / machine.int8_gmacs
    what, share = ("reading the weights", read) if read >= multiply else ("multiplying", multiply)
    return f"{figure.test} is bound by {what}: it reaches {share:.0%} of what this machine can do"
