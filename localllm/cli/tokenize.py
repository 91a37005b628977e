"""``localllm tokenize``: a text as the model sees it."""

from __future__ import annotations

import json

import click

from localllm.chat.terminal import write_line
from localllm.cli.inputs import read_text
from localllm.cli.models import locate
from localllm.cli.progress import Progress


@click.command(short_help="Show a text's tokens.")
@click.argument("model")
@click.argument("text", required=False)
@click.option("-f", "--file", "file", metavar="FILE", help="Read the text from a file.")
@click.option("--special/--no-special", default=True, help="Add the tokens that the model wants at the start and end (the default).")
@click.option("--parse-special", is_flag=True, help="Names of control tokens in the text are these tokens.")
@click.option("--json", "as_json", is_flag=True, help="As JSON: ids and pieces.")
def command(model: str, text: str | None, file: str | None, special: bool, parse_special: bool, as_json: bool) -> None:
    """Show the tokens of TEXT, a line each: id and piece. Without TEXT it is what is piped in, to the last byte.

    Bytes of a piece that are no UTF-8 by themselves appear as \\xNN.
    """
    import localllm

    if text is not None and file is not None:
        raise click.UsageError("TEXT and -f were both given; give one.")
    text = text if text is not None else read_text(file or "-")
    with Progress() as progress:
        tokenizer = localllm.Tokenizer.from_gguf(locate(model, progress))
    ids = tokenizer.encode(text, add_special=special, parse_special=parse_special)
    pieces = [tokenizer.decode([id_], special=True).decode("utf-8", "backslashreplace") for id_ in ids]
    if as_json:
        write_line(json.dumps({"ids": ids, "pieces": pieces}, ensure_ascii=False))
        return
    width = max((len(str(id_)) for id_ in ids), default=0)
    for id_, piece in zip(ids, pieces, strict=True):
        write_line(f"{id_:>{width}}  {piece!r}")
