"""``localllm bench`` and llama.cpp in turn on the same files with the same threads: speeds, ratios, and all that is needed to repeat it.

One round runs every competitor once, each in a process of its own; what a competitor has is the median over the rounds, and a ratio is one
of medians. See README.md beside this file for how to build a fair peer.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

OURS = "localllm"
HERE = Path(__file__).resolve().parent
_TEST = re.compile(r"(pp|tg)([1-9]\d*)(?:@d([1-9]\d*))?")
_SETS = (
    *("sse4.1", "avx", "avx2", "fma", "f16c", "avxvnni", "avx512f", "avx512bw", "avx512vnni", "avx512vbmi", "avx512bf16", "avx512fp16"),
    *("amx-int8", "neon", "dotprod", "i8mm", "bf16"),
)
"""Instruction sets that matter here, by LLVM's names."""


@dataclass(frozen=True, slots=True)
class Competitor:
    """``command``: what is run; the model and the options of a test come behind it."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One call of a competitor: a prompt of ``prompt`` tokens and ``decode`` tokens one by one, behind ``depth``; 0 leaves one out."""

    prompt: int
    decode: int
    depth: int

    def options(self) -> list[str]:
        """As the commands have them."""
        return ["-p", str(self.prompt), "-n", str(self.decode), "-d", str(self.depth)]


def plan(tests: Sequence[str]) -> list[Run]:
    """The calls that these tests need: a prompt and a decode at one depth share a load. Raises click.BadParameter."""
    runs: list[Run] = []
    for test in tests:
        found = _TEST.fullmatch(test)
        if not found:
            raise click.BadParameter(f"{test!r}; expected such as pp512, tg64 or tg32@d4096", param_hint="--test")
        kind, count, depth = found[1], int(found[2]), int(found[3] or 0)
        new = Run(count, 0, depth) if kind == "pp" else Run(0, count, depth)
        last = runs[-1] if runs else new
        if runs and kind == "tg" and last.depth == depth and not last.decode:
            runs[-1] = Run(last.prompt, count, depth)
        else:
            runs.append(new)
    return runs


def measure(
    models: Sequence[Path], competitors: Sequence[Competitor], runs: Sequence[Run], rounds: int, common: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """All answers of all competitors in turn, as they printed them, each with ``competitor``, ``file`` and ``command``. Raises
    click.ClickException where one fails."""
    for model in models:
        for done in range(rounds):
            for run in runs:
                for one in competitors:
                    command = [*one.command, str(model), *run.options(), *common]
                    answer = _ask(command)
                    answer |= {"competitor": one.name, "file": model.name, "command": _shown(one, command)}
                    speeds = ", ".join(f"{r['test']} {r['tps']:.1f}" for r in answer["results"])
                    click.echo(f"{model.name} {done + 1}/{rounds} {one.name}: {speeds}", err=True)
                    yield answer


def _ask(command: Sequence[str]) -> dict[str, Any]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=False)
    except OSError as error:
        raise click.ClickException(f"{command[0]} can't be run: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise click.ClickException(f"{' '.join(command)}\nended with {done.returncode}: {said or 'it said nothing'}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _shown(one: Competitor, command: Sequence[str]) -> str:
    """A command without this machine's folders. A peer's Python goes by the peer's name."""
    words = [Path(word).name if os.sep in word else word for word in command]
    target = os.environ.get("LOCALLLM_CPU")
    if one.name == OURS:
        return " ".join([f"LOCALLLM_CPU={target}", *words] if target else words)
    return " ".join([f"{one.name}/{words[0]}", *words[1:]])


def summarise(answers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A record for each file and test: ``speeds``, by competitor the median, least and most tokens a second and how many samples;
    ``ratio``, by peer, ours to it; ``read`` and ``multiply``: what share of the ceilings of its own call ours reaches, or None."""
    samples: dict[tuple[str, str], dict[str, list[float]]] = {}
    shares: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for answer in answers:
        for result in answer["results"]:
            key = answer["file"], result["test"]
            samples.setdefault(key, {}).setdefault(answer["competitor"], []).append(result["tps"])
            machine = answer.get("machine")
            if machine:
                shares.setdefault(key, []).append((result["gbps"] / machine["read_gbps"], result["gmacs"] / machine["int8_gmacs"]))
    table = []
    for (file, test), found in samples.items():
        speeds = {name: [statistics.median(v), min(v), max(v), len(v)] for name, v in found.items()}
        ratio = {name: speeds[OURS][0] / speed[0] for name, speed in speeds.items() if OURS in speeds and name != OURS}
        found_shares = shares.get((file, test))
        read, multiply = (statistics.median(column) for column in zip(*found_shares, strict=True)) if found_shares else (None, None)
        table.append({"file": file, "test": test, "speeds": speeds, "ratio": ratio, "read": read, "multiply": multiply})
    return table


def machine(answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What was measured on: processor, instruction sets, and the medians of the ceilings that our calls measured."""
    import llvmlite.binding as llvm

    ceilings = [answer["machine"] for answer in answers if answer.get("machine")]
    features = llvm.get_host_cpu_features()
    return {
        "processor": processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "instructions": [name for name in _SETS if features.get(name)],
        **{name: statistics.median(c[name] for c in ceilings) for name in ("read_gbps", "int8_gmacs") if ceilings},
    }


def processor() -> str:
    """The processor's name for itself."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return found[1] if found else platform.processor()
    except OSError:
        pass
    if sys.platform == "darwin":
        name = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=False).stdout.strip()
        return name or platform.processor()
    return platform.processor()


def peers_of(answers: Iterable[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """What each peer is: package, version, and llama.cpp's own account of its build."""
    return {a["competitor"]: {name: a[name] for name in ("package", "version", "system")} for a in answers if "package" in a}


def markdown(record: dict[str, Any]) -> str:
    """The record for people: the table, the machine, the peers, the commands."""
    peers = list(record["peers"])
    head = ["file", "test", OURS, *peers, *(f"ratio to {peer}" for peer in peers), "of the read sum", "of the int8 peak"]
    how = "Tokens a second: median (least to most) of the rounds. Ratios are of medians."
    lines = [f"# {record['title']}", "", how, "", _row(head), _row(["---"] * len(head))]
    for row in record["table"]:
        cells = [row["file"], row["test"]]
        cells += [_speed(row["speeds"].get(name)) for name in (OURS, *peers)]
        cells += [f"**{row['ratio'][peer]:.2f}**" if peer in row["ratio"] else "" for peer in peers]
        decoding = row["test"].startswith("tg")
        cells += [_share(row["read"] if decoding else None), _share(None if decoding else row["multiply"])]
        lines.append(_row(cells))
    return "\n".join([*lines, "", *_machine_lines(record), ""])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _share(found: float | None) -> str:
    return "" if found is None else f"{found:.0%}"


def _speed(found: Sequence[float] | None) -> str:
    return f"{found[0]:.1f} ({found[1]:.1f} to {found[2]:.1f})" if found else ""


def _machine_lines(record: dict[str, Any]) -> list[str]:
    about = record["machine"]
    lines = [
        f"- {about['processor']}, {about['processors']} processors, {about['system']}; {' '.join(about['instructions'])}",
        f"- {record['threads']} threads, {_rounds(record['table'])} of each, {record['date']}",
    ]
    if "read_gbps" in about:
        read, multiply = about["read_gbps"], about["int8_gmacs"]
        lines.append(f"- measured in the same runs: memory read sum {read:.1f} GB/s, int8 peak {multiply:.0f} GMAC/s")
    lines += [f"- {name}: {text}" for name, text in record["versions"].items()]
    lines += [f"- {name}: {peer['package']} {peer['version']}: `{peer['system']}`" for name, peer in record["peers"].items()]
    return [*lines, "", "Commands:", "", "```", *record["commands"], "```"]


def _rounds(table: Sequence[dict[str, Any]]) -> str:
    counts = sorted({int(speed[3]) for row in table for speed in row["speeds"].values()})
    return f"{counts[0]} round{'s' if counts[0] > 1 else ''}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} rounds"


def versions() -> dict[str, str]:
    """What ours ran with."""
    target = os.environ.get("LOCALLLM_CPU")
    found = {name: version(name) for name in (OURS, "numba", "llvmlite", "numpy")}
    found["python"] = platform.python_version()
    return found | ({"LOCALLLM_CPU": target} if target else {})


def record_of(title: str, threads: int, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """All that is kept of a comparison."""
    return {
        "title": title,
        "date": date.today().isoformat(),
        "threads": threads,
        "machine": machine(answers),
        "versions": versions(),
        "peers": peers_of(answers),
        "commands": list(dict.fromkeys(answer["command"] for answer in answers)),
        "table": summarise(answers),
        "answers": answers,
    }


def competitors_of(peers: Sequence[str], flash: bool) -> list[Competitor]:
    """Ours and the peers named; where none is named, those that this Python has."""
    script = str(HERE / "peer.py")
    extra = ("--flash",) if flash else ()
    found = [Competitor(OURS, (sys.executable, "-m", "localllm", "bench", "--json"))]
    for name, python in _named(peers):
        found.append(Competitor(name, (python, script, *extra)))
    return found


def _named(peers: Sequence[str]) -> list[tuple[str, str]]:
    if not peers:
        packages = (("llama.cpp", "llama_cpp"), ("xllamacpp", "xllamacpp"))
        return [(name, sys.executable) for name, package in packages if importlib.util.find_spec(package)][:1]
    pairs = [peer.partition("=") for peer in peers]
    for name, _, python in pairs:
        if not name or not python or name == OURS:
            raise click.BadParameter(f"{name!r}; expected NAME=PYTHON", param_hint="--peer")
    return [(name, python) for name, _, python in pairs]


def earlier(path: Path, threads: int) -> list[dict[str, Any]]:
    """The answers that a file holds. Raises click.ClickException where new ones can't stand beside them."""
    try:
        before = json.loads(path.read_text("utf-8"))
        answers: list[dict[str, Any]] = before["answers"]
    except (ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"{path} is no record of a comparison ({error}); write another file") from None
    for what, now in (("threads", threads), ("versions", versions())):
        if before.get(what) != now:
            raise click.ClickException(f"{path} has {what} {before.get(what)}, and now it is {now}; write another file")
    return answers


def save(record: dict[str, Any], path: Path) -> None:
    """Write both files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    path.with_suffix(".md").write_text(markdown(record), "utf-8")


@click.command(help=__doc__)
@click.argument("models", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--peer", "peers", multiple=True, metavar="NAME=PYTHON", help="A Python that has llama_cpp or xllamacpp; may be repeated.")
@click.option("--test", "tests", multiple=True, metavar="TEST", default=("pp512", "tg64"), show_default=True, help="pp512, tg32@d4096, ...")
@click.option("-t", "--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("-r", "--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of a test in one call.")
@click.option("--flash", is_flag=True, help="The peers use flash attention.")
@click.option("--title", default="localllm and llama.cpp", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The JSON file; the Markdown comes beside it.")
@click.option("--merge", is_flag=True, help="Add these rounds to those that the file holds.")
def main(
    models: tuple[Path, ...],
    peers: tuple[str, ...],
    tests: tuple[str, ...],
    threads: int,
    rounds: int,
    repeats: int,
    flash: bool,
    title: str,
    output: Path | None,
    merge: bool,
) -> None:
    common = ["-t", str(threads), "-r", str(repeats)]
    path = output or HERE / "results" / f"{date.today().isoformat()}.json"
    if path.suffix != ".json":
        raise click.UsageError(f"--output {path}: expected a name that ends in .json; the Markdown comes beside it")
    if path.exists() and not merge:
        raise click.UsageError(f"{path} is there already; --merge adds to it, --output names another file")
    answers = earlier(path, threads) if merge and path.exists() else []
    before = len(answers)
    try:
        answers.extend(measure([m.resolve() for m in models], competitors_of(peers, flash), plan(tests), rounds, common))
    finally:  # also what was measured until one failed
        if len(answers) > before:
            record = record_of(title, threads, answers)
            save(record, path)
            click.echo(markdown(record))


if __name__ == "__main__":
    main()
