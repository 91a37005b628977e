"""The options of a generation as keywords: their types, and what they may be mistaken for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from numpy.typing import NDArray

from localllm.backends.base import Float
from localllm.errors import OptionError

Processor = Callable[[Sequence[int], Float], NDArray[Any]]
"""Changes logits before anything else: given all tokens of the line and the logits (V,) after them, which it may write to, the
logits to go on with, floats of the same shape. A pure function: it is asked again where a drafted token was rejected."""


class GenerationKeywords(TypedDict, total=False):
    """The keywords of generate() and stream(), for type checkers: the fields of GenerationOptions."""

    max_tokens: int | None
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    min_keep: int
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: str | Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    samplers: str | Sequence[str]
    logit_bias: Mapping[int, float] | None
    logits_processors: Processor | Sequence[Processor]
    seed: int | None
    completion: int
    logprobs: int | None
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    raw: bool
    parse_special: bool


_ELSEWHERE = {
    "temp": "temperature",
    "dynatemp_exp": "dynatemp_exponent",
    "typical": "typical_p",
    "typ_p": "typical_p",
    "top_nsigma": "top_n_sigma",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "repetition_penalty": "repeat_penalty",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "repeat_last_n",
    "mirostat_lr": "mirostat_eta",
    "mirostat_ent": "mirostat_tau",
    "n_probs": "logprobs",
    "top_logprobs": "logprobs",
    "logits_processor": "logits_processors",
    "stop_strings": "stop",
    "stop_sequences": "stop",
    "stop_tokens": "stop_token_ids",
    "n_ctx": "ctx",
    "num_ctx": "ctx",
    "ctx_size": "ctx",
    "n_threads": "threads",
    "num_threads": "threads",
    "n_batch": "batch",
    "device": "backend",
}
"""What other programs call the same thing."""


def refuse_unknown(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises OptionError for a name that is not known, with the one that was probably meant."""
    for name in options:
        if name not in known:
            raise OptionError(f"option {name!r} does not exist{_suggestion(name, known)}")


def _suggestion(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    meant = [_ELSEWHERE[name]] if _ELSEWHERE.get(name) in known else get_close_matches(name.lower(), known, 1)
    return f"; did you mean {meant[0]!r}?" if meant else f"; there are: {', '.join(known)}"
