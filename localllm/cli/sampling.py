"""Options of how an answer is made, with llama.cpp's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from localllm.errors import OptionError

Command = Callable[..., Any]
_NONE = "none"


def sampling_options(command: Command) -> Command:
    """They arrive under the names that ``Model.generate`` has for them, None where not given."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _if_given(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """A callback that changes a value, and leaves alone what was not given."""

    def callback(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        return None if value in (None, ()) else change(value)

    return callback


def _biases(given: tuple[str, ...]) -> dict[int, float]:
    """TOKEN_ID+BIAS or TOKEN_ID-BIAS, as llama.cpp has it."""
    found: dict[int, float] = {}
    for text in given:
        digits = len(text) - len(text.lstrip("0123456789"))
        try:
            if text[digits] not in "+-":
                raise ValueError
            found[int(text[:digits])] = float(text[digits:])
        except (ValueError, IndexError):
            raise OptionError(f"--logit-bias is {text!r}; expected TOKEN_ID+BIAS or TOKEN_ID-BIAS, such as 15043-1.5 or 2-inf") from None
    return found


def _breakers(given: tuple[str, ...]) -> tuple[str, ...]:
    """As they are but for the escapes that shells make hard to type."""
    return () if _NONE in given else tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in given)


def _option(*names: str, help: str, kind: type = float, metavar: str = "N", **others: Any) -> Callable[[Command], Command]:
    return click.option(*names, type=kind, metavar=metavar, help=help, **others)


def _several(*names: str, help: str, change: Callable[[Any], Any] = tuple, **others: Any) -> Callable[[Command], Command]:
    return click.option(*names, multiple=True, callback=_if_given(change), help=help, **others)


_OPTIONS = (
    click.option(
        "-n",
        "--max-tokens",
        "--predict",
        "--n-predict",
        "max_tokens",
        type=int,
        metavar="N",
        callback=_if_given(lambda n: None if n == -1 else n),
        help="At most N tokens (-1: no limit).",
    ),
    _option("--temp", "--temperature", "temperature", metavar="T", help="Temperature; 0 always takes the likeliest token."),
    _option("--dynatemp-range", help="The temperature varies by so much, up where the model is unsure (0: off)."),
    _option("--dynatemp-exp", "dynatemp_exponent", help="How steeply it does."),
    _option("--top-k", kind=int, metavar="K", help="Choose among the K likeliest tokens (0: all)."),
    _option("--top-p", metavar="P", help="Choose among the likeliest that together reach P."),
    _option("--min-p", metavar="P", help="Choose among those at least P times as likely as the likeliest."),
    _option("--typical", "--typical-p", "typical_p", metavar="P", help="Choose among the most typical that together exceed P (1: off)."),
    _option("--top-n-sigma", "--top-nsigma", "top_n_sigma", help="Choose among those within N standard deviations of the largest logit."),
    _option("--xtc-probability", metavar="P", help="How often the top choices are taken out (0: off)."),
    _option("--xtc-threshold", metavar="P", help="What counts as one of them."),
    _option("--min-keep", kind=int, help="Top-p, min-p, typical and XTC leave at least N tokens."),
    _option("--repeat-penalty", help="Against tokens that occurred lately (1: off)."),
    _option("--presence-penalty", help="Subtracted once from tokens that occurred (0: off)."),
    _option("--frequency-penalty", help="Subtracted for each time (0: off)."),
    _option("--repeat-last-n", kind=int, help="How far these three look back (-1: everywhere)."),
    _option("--dry-multiplier", help="Against tokens that continue a repetition (0: off)."),
    _option("--dry-base", help="How the penalty grows with its length."),
    _option("--dry-allowed-length", kind=int, help="Repetitions up to this length are free."),
    _option("--dry-penalty-last-n", kind=int, help="How far DRY looks back (-1: everywhere)."),
    _several(
        "--dry-sequence-breaker",
        "dry_sequence_breakers",
        change=_breakers,
        metavar="TEXT",
        help=f"No repetition reaches across TEXT; can be repeated, replaces the default ones; {_NONE!r} is none at all.",
    ),
    _option("--mirostat", kind=int, help="1 or 2: keep the surprise constant, in place of other samplers (0: off)."),
    _option("--mirostat-ent", "mirostat_tau", help="The surprise, in bits."),
    _option("--mirostat-lr", "mirostat_eta", help="How fast it follows."),
    click.option("--samplers", metavar="NAMES", help='Which samplers are used, in this order, separated by ";".'),
    _several("-l", "--logit-bias", "logit_bias", change=_biases, metavar="ID(+/-)BIAS", help="Add to a token's logit; can be repeated."),
    _option("-s", "--seed", kind=int, callback=_if_given(lambda n: None if n == -1 else n), help="The same seed gives the same answer."),
    _several("--stop", metavar="TEXT", help="End before TEXT; can be repeated."),
    _several("--stop-token", "stop_token_ids", type=int, metavar="ID", help="End before this token; can be repeated."),
    click.option("--ignore-eos", is_flag=True, default=None, help="Never end by itself."),
)
