"""The sampling that a model's file recommends, and how options are told."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from localllm.errors import OptionError
from localllm.generation.checks import sampler
from localllm.generation.options import GenerationOptions

PREFIX = "general.sampling."
_OPTIONS = {
    "sequence": "samplers",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "temp": "temperature",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
"""GGUF's names, behind the prefix, and ours."""


def recommended(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a file's metadata recommends. What an option can't have, or no sampler is called, is left out."""
    found: dict[str, Any] = {}
    for key, name in _OPTIONS.items():
        value = _value(name, metadata.get(PREFIX + key))
        try:
            GenerationOptions(**{name: value})
        except OptionError:
            continue
        found[name] = value
    return found


def _value(name: str, value: Any) -> Any:
    if name == "samplers":
        names = map(sampler, value.split(";")) if isinstance(value, str) else ()
        return tuple(filter(None, names)) or None
    # Written as float32: 0.7 is shown as that, not as 0.699999988079071.
    return float(f"{value:.7g}") if isinstance(value, float) else value


def told(options: GenerationOptions, model: Collection[str] = ()) -> str:
    """The samplers that are used, in their order, with their values; ``*`` behind those that the model recommends."""
    names = ("temperature", "mirostat") if options.mirostat else options.samplers
    groups = [_TOLD[name] for name in names if _used(options, name)]
    if options.dynatemp_range:
        groups = [(*group, "dynatemp_range", "dynatemp_exponent") if group == ("temperature",) else group for group in groups]
    if options.logit_bias:
        groups.insert(0, ("logit_bias",))
    shown = [" ".join(f"{name} {_short(getattr(options, name))}{'*' if name in model else ''}" for name in group) for group in groups]
    return "; ".join(shown) or "none"


_TOLD: dict[str, tuple[str, ...]] = {
    "penalties": ("repeat_penalty", "presence_penalty", "frequency_penalty", "repeat_last_n"),
    "dry": ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
    "top_n_sigma": ("top_n_sigma",),
    "top_k": ("top_k",),
    "typ_p": ("typical_p",),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "xtc": ("xtc_probability", "xtc_threshold"),
    "temperature": ("temperature",),
    "mirostat": ("mirostat", "mirostat_tau", "mirostat_eta"),
}


def _used(options: GenerationOptions, name: str) -> bool:
    from localllm.generation.chain import chain_of

    if name in ("temperature", "mirostat"):
        return True
    return bool(chain_of(GenerationOptions(**{each: getattr(options, each) for each in _TOLD[name]}, samplers=(name,))))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{len(value)} tokens" if isinstance(value, Mapping) else str(value)
