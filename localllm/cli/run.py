"""``localllm run``: answer a prompt, or chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from localllm import store
from localllm.chat import terminal
from localllm.cli.inputs import read_text, waiting_text, without_last_newline
from localllm.cli.models import locate
from localllm.cli.options import model_options
from localllm.cli.progress import Progress
from localllm.cli.sampling import sampling_options
from localllm.errors import ModelNotFoundError, OptionError, TemplateError

if TYPE_CHECKING:
    from localllm.api import Model
    from localllm.generation.batch import Streams
    from localllm.generation.results import Result
    from localllm.generation.stream import Stream

INTERRUPTED = 130
"""The exit code of an answer that Ctrl-C ended: 128 + SIGINT."""

_FULL = "note: the context is full; -c N makes room for more tokens"
_HOW = f'a prompt comes after the model: localllm run {store.DEFAULT} "Why is the sky blue?"'


@click.command(short_help="Answer a prompt, or chat.")
@click.argument("words", nargs=-1, metavar="[MODEL] [PROMPT]...")
@click.option("-f", "--file", "file", metavar="FILE", help="Read the prompt from a file ('-': standard input).")
@click.option("--system", metavar="TEXT", help="System message: what the model is told to be.")
@click.option("--raw", is_flag=True, default=None, help="Continue the prompt as it is, without the model's chat template.")
@click.option("--parse-special", is_flag=True, default=None, help="With --raw: names of control tokens in the prompt are these tokens.")
@sampling_options
@click.option("--completions", "n", type=int, metavar="N", help="N answers, computed together; each is shown under its number.")
@model_options
@click.option("--stats", is_flag=True, help="Afterwards, counts and speeds on stderr.")
def command(
    words: tuple[str, ...],
    file: str | None,
    system: str | None,
    stats: bool,
    n: int | None,
    load: dict[str, Any],
    raw: bool | None,
    **given: Any,
) -> int:
    """Answer PROMPT with MODEL and stream the answer to standard output.

    The prompt is the words after MODEL, the file of -f, or what is piped in; what is piped in beside words is put behind them.
    Without a prompt, on a terminal, a chat begins.
    Without MODEL it is smollm2:135m, fetched on first use.
    """
    options = {name: value for name, value in {"raw": raw, **given}.items() if value is not None}
    if system is not None and raw:
        raise OptionError("--system and --raw were both given; a raw prompt has no messages: write the system text into it")
    name = words[0] if words else store.DEFAULT
    _check_name(name)
    prompt = _prompt(words[1:], file)
    with Progress() as progress, _load(name, progress, load) as model:
        if prompt is not None:
            told = model.recommended if stats else None
            if n is not None:
                return answers(model.stream(_input(prompt, system), n=n, progress=progress, **options), told, progress)
            return answer(model.stream(_input(prompt, system), progress=progress, **options), told, progress)
        progress.close()
        if n is not None:
            raise OptionError(f"--completions needs a prompt, since a chat has one answer at a time; {_HOW}")
        return _chat(model, system, options)


def _chat(model: Model, system: str | None, options: dict[str, Any]) -> int:
    from localllm.chat import chat

    if options.get("raw"):
        raise OptionError(f"--raw needs a prompt, since a chat has messages; {_HOW}")
    if model.template is None:
        raise TemplateError(f"the model has no chat template: it only continues texts; {_HOW}")
    return chat(model, system, options)


def _check_name(name: str) -> None:
    """Raises ModelNotFoundError for a first word that is no model: it was probably meant as the prompt, or its beginning."""
    try:
        store.lookup(name)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(f"{error}; {_HOW}") from error


def _load(name: str, progress: Progress, load: dict[str, Any]) -> Model:
    import localllm

    return localllm.load(locate(name, progress), progress=progress, **load)


def _prompt(words: tuple[str, ...], file: str | None) -> str | None:
    """The prompt; None to chat."""
    if words and file is not None:
        raise OptionError(f"a prompt ({' '.join(words)[:40]!r}) and -f {file} were both given; give one")
    if words:
        piped = without_last_newline(waiting_text())
        return " ".join(words) + (f"\n\n{piped}" if piped else "")
    if file is None and terminal.interactive():
        return None
    text = without_last_newline(read_text(file or "-"))
    if not text:
        where = "standard input" if file in (None, "-") else repr(file)
        raise OptionError(f"the prompt from {where} is empty; {_HOW}")
    return text


def _input(prompt: str, system: str | None) -> str | list[dict[str, str]]:
    if system is None:
        return prompt
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]


def answer(stream: Stream, recommended: Mapping[str, Any] | None, progress: Progress) -> int:
    """Write an answer as it comes; the exit code. Ctrl-C ends it where it is. ``recommended``: what the model does, for statistics;
    None shows none."""
    last, code = "", 0
    try:
        for event in stream:
            progress.close()
            if event.text:
                terminal.write(event.text)
                last = event.text
    except KeyboardInterrupt:
        progress.close()
        stream.close()
        code = INTERRUPTED
    if not last.endswith("\n"):
        terminal.write("\n")
    if stream.result.finish_reason == "context":
        click.echo(_FULL, err=True)
    if recommended is not None:
        _show_stats(stream.result)
        _show_sampling(stream, recommended)
    return code


def answers(stream: Streams, recommended: Mapping[str, Any] | None, progress: Progress) -> int:
    """Write several answers once all are there, each under its number; the exit code. Ctrl-C ends them where they are."""
    code = 0
    try:
        for _ in stream:
            progress.close()
    except KeyboardInterrupt:
        progress.close()
        stream.close()
        code = INTERRUPTED
    for number, result in enumerate(stream.results, 1):
        terminal.write(f"[{number}]\n{result.text}" + ("" if result.text.endswith("\n") else "\n"))
    if any(result.finish_reason == "context" for result in stream.results):
        click.echo(_FULL, err=True)
    if recommended is not None:
        for result in stream.results:
            _show_stats(result)
        _show_sampling(stream, recommended)
    return code


def _show_stats(result: Result) -> None:
    timings, usage = result.timings, result.usage
    for what, count, seconds, speed in (
        ("prompt", usage.prompt_tokens, timings.prompt_seconds, timings.prompt_per_second),
        ("answer", usage.completion_tokens, timings.completion_seconds, timings.completion_per_second),
    ):
        click.echo(f"{what}: {count} tokens, {seconds:.2f} s, {speed:.1f} tokens/s", err=True)
    which = f"; completion: {result.completion}" if result.completion else ""
    click.echo(f"ended by: {result.finish_reason}; seed: {result.seed}{which}", err=True)


def _show_sampling(stream: Stream | Streams, recommended: Mapping[str, Any]) -> None:
    from localllm.generation.recommended import told

    options = stream.options
    by_model = {name for name, value in recommended.items() if getattr(options, name) == value}
    click.echo(f"sampling: {told(options, by_model)}" + (" (*: recommended by the model)" if by_model else ""), err=True)
