"""The ``localllm`` command: finds a subcommand, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from localllm import __version__
from localllm.chat import terminal
from localllm.errors import FileError, LocalLLMError, OutOfMemoryError

COMMANDS = ("run", "pull", "list", "show", "tokenize", "perplexity", "bench")
"""In the order that the help shows them. Each is a module of this package with a click command ``command``."""

INTERRUPTED = 130
"""128 + SIGINT, as a shell reports it."""
PIPE_CLOSED = 1
"""The reader of our output went away; click's code for it too."""


class _Commands(click.Group):
    """Subcommands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"localllm.cli.{cmd_name}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="localllm %(version)s")
def app() -> None:
    """Run language models from GGUF files on your own computer.

    MODEL is the path of a GGUF file or a name that 'localllm list' shows.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. A LocalLLMError becomes one line on stderr and its class's code."""
    terminal.prepare()
    try:
        result = app.main(arguments, prog_name="localllm", standalone_mode=False)
        terminal.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        return _fail(f"{error.format_message()}{_hint(error)}", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return PIPE_CLOSED
    except LocalLLMError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _fail(f"output can't be written: {error.strerror or error}", FileError.exit_code)
    except MemoryError:
        return _fail("this needs more memory than there is", OutOfMemoryError.exit_code)


def _hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f" ('{context.command_path} -h' shows how it is used)" if context else ""


def _fail(message: str, code: int) -> int:
    click.echo(f"error: {terminal.line(' '.join(message.splitlines()))}", err=True)
    return code
