"""The options of a generation: one frozen value, made from keywords and checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from localllm.generation.checks import SAMPLERS, SPEC, biases, callables, ids, real, samplers, strings
from localllm.generation.checks import choice as choice
from localllm.generation.checks import switch as switch
from localllm.generation.checks import whole as whole
from localllm.generation.full import POLICIES
from localllm.generation.keywords import GenerationKeywords as GenerationKeywords
from localllm.generation.keywords import Processor
from localllm.generation.keywords import refuse_unknown as refuse_unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """How an answer is made. Names and defaults are llama.cpp's; raises OptionError for a value that an option can't have.

    ``max_tokens``: None is until the model ends or the context is full.

    Which tokens are chosen among, and how likely they become:
    ``temperature``: 0 is greedy. ``dynatemp_range``: it varies by so much, down where the model is sure and up where it is not (0: it
    does not), along a curve of ``dynatemp_exponent``.
    ``top_k``: keep the k likeliest (0: all). ``top_p``: keep the likeliest that together reach p (1: all).
    ``min_p``: keep what is at least min_p times as likely as the likeliest (0: all).
    ``typical_p``: keep those nearest to the expected surprise that together exceed p (1: all).
    ``top_n_sigma``: keep those within n standard deviations of the largest logit (0 or less: all).
    ``xtc_probability``: how often all but the least likely of those above ``xtc_threshold`` are taken out (0: never).
    ``min_keep``: tokens that top_p, min_p, typical_p and XTC leave at least.
    ``repeat_penalty``, ``presence_penalty``, ``frequency_penalty``: against tokens among the last ``repeat_last_n``
    (-1: the whole line, 0: none); 1, 0 and 0 are off.
    ``dry_multiplier``: against tokens that would continue a repetition longer than ``dry_allowed_length`` within the last
    ``dry_penalty_last_n`` (-1: the whole line), growing by ``dry_base`` with each token (0: off); no repetition reaches across
    ``dry_sequence_breakers``.
    ``mirostat``: 1 or 2 keeps the surprise near ``mirostat_tau`` bits, learning at the rate ``mirostat_eta``; of the others only
    temperature and ``logit_bias`` are used then.
    ``samplers``: which of these are used, and in which order: a list, or names separated by ";".
    ``logit_bias``: added to the logits of token ids before all of them; -inf bans one.
    ``logits_processors``: functions (tokens, logits) -> logits, before everything else.

    ``seed``: None draws one, which the result names. ``completion``: which answer to the same prompt with the same seed.
    ``logprobs``: how many of the likeliest tokens are told with each token, beside its own log-probability (None: nothing is told).
    ``stop``: strings that end the answer and are not part of it. ``stop_token_ids``: tokens that do.
    ``on_full``: what happens when the context is full. "error": a prompt that does not fit is refused, an answer ends there. "stop": both
    end there. "shift": the oldest tokens behind the first ``keep`` (-1: the prompt) are dropped. "drop-oldest-turns": the oldest turns of
    a conversation are.
    ``ignore_eos``: never sample a token that ends generation.
    ``raw``: a string is continued as it is; otherwise it is a user's message in the model's chat template.
    ``parse_special``: in a raw prompt, texts of control tokens become those tokens.
    ``spec``: where guesses of several tokens at once come from, which change the speed and nothing else: "ngram", the text so far;
    "draft", the model that was loaded for it; "auto", whichever there are; "off". Several answers at once (``n``) are never guessed.
    """

    max_tokens: int | None = None
    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    min_keep: int = 0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: str | Sequence[str] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    samplers: str | Sequence[str] = SAMPLERS
    logit_bias: Mapping[int, float] | None = None
    logits_processors: Processor | Sequence[Processor] = ()
    seed: int | None = None
    completion: int = 0
    logprobs: int | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    on_full: str = "error"
    keep: int = 0
    raw: bool = False
    parse_special: bool = False
    spec: str = "auto"

    def __post_init__(self) -> None:
        for name, *border in _WHOLE:
            whole(name, getattr(self, name), *border)
        for name in ("max_tokens", "seed", "logprobs"):
            whole(name, getattr(self, name), int(name == "max_tokens"), 2**64 - 1 if name == "seed" else None, optional=True)
        for name, *limits in _REAL:
            real(name, getattr(self, name), *limits)
        real("repeat_penalty", self.repeat_penalty, 0, _FAR, above=True)
        for name in ("ignore_eos", "raw", "parse_special"):
            switch(name, getattr(self, name))
        choice("on_full", self.on_full, POLICIES)
        choice("spec", self.spec, SPEC)
        for name, check in _KEPT.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.logit_bias is not None:
            object.__setattr__(self, "logit_bias", biases("logit_bias", self.logit_bias))

    @property
    def stops(self) -> tuple[str, ...]:
        """``stop`` as it is kept: a tuple of strings."""
        return tuple(self.stop)

    @property
    def processors(self) -> tuple[Processor, ...]:
        """``logits_processors`` as they are kept: a tuple."""
        return self.logits_processors if isinstance(self.logits_processors, tuple) else ()


_WHOLE: tuple[tuple[Any, ...], ...] = (
    ("top_k", 0),
    ("min_keep", 0),
    ("repeat_last_n", -1),
    ("dry_allowed_length", 0),
    ("dry_penalty_last_n", -1),
    ("mirostat", 0, 2),
    ("completion", 0),
    ("keep", -1),
)
_FAR = 1e20
"""What is larger has no more effect, and would leave the range of float32 when it is multiplied."""
_REAL: tuple[tuple[Any, ...], ...] = (
    ("temperature", 0, _FAR),
    ("dynatemp_range", 0, _FAR),
    ("dynatemp_exponent", 0, _FAR),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("typical_p", 0, 1),
    ("top_n_sigma", -_FAR, _FAR),
    ("xtc_probability", 0, 1),
    ("xtc_threshold", 0, 1),
    ("presence_penalty", -_FAR, _FAR),
    ("frequency_penalty", -_FAR, _FAR),
    ("dry_multiplier", 0, _FAR),
    ("dry_base", 0, _FAR),
    ("mirostat_tau", 0, 1e6),
    ("mirostat_eta", 0, 1e6),
)
_KEPT = {
    "dry_sequence_breakers": strings,
    "samplers": samplers,
    "logits_processors": callables,
    "stop": strings,
    "stop_token_ids": ids,
}
"""Options that are kept as tuples."""

NAMES = tuple(field.name for field in fields(GenerationOptions))


def make(options: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> GenerationOptions:
    """The options of these keywords, over ``defaults``. Raises OptionError for one that does not exist, with the likely right name."""
    refuse_unknown(options, NAMES)
    return GenerationOptions(**{**(defaults or {}), **options})
