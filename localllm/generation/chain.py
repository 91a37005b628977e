"""From options to a chain of filters. What an option leaves off is not in it, and its code is not even imported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from localllm.generation.options import GenerationOptions
from localllm.generation.sampling import COLDEST, Ban, Breakers, Filter, Greedy, MinP, Temperature, TopK, TopP


def chain_of(options: GenerationOptions, *, banned: Sequence[int] = (), breakers: Breakers | None = None) -> tuple[Filter, ...]:
    """The filters that these options ask for, in their order. ``banned``: ids never to be sampled; ``breakers``: those of DRY."""
    chain = list(_before(options, banned))
    if options.mirostat:
        chain += [*_temperature(options), *_mirostat(options)]
    else:
        for name in options.samplers:
            chain += _dry(options, breakers or {}) if name == "dry" else _MAKE[name](options)
    return tuple(_shortened(chain))


def memory_of(options: GenerationOptions) -> int:
    """How many of the latest tokens the chain looks at; -1: all."""
    if options.processors:
        return -1
    names = () if options.mirostat else options.samplers
    windows = [options.repeat_last_n] * ("penalties" in names and _penalised(options)) + [options.dry_penalty_last_n] * (
        "dry" in names and _dried(options)
    )
    return -1 if -1 in windows else max(windows, default=0)


def _shortened(chain: list[Filter]) -> list[Filter]:
    """Without what changes nothing where the likeliest token is taken: filters that always keep it, and all that comes after."""
    greedy = next((n for n, one in enumerate(chain) if isinstance(one, Greedy)), None)
    if greedy is None:
        return chain
    kept = chain[:greedy]
    while kept and isinstance(kept[-1], TopK | TopP | MinP):
        kept.pop()
    return [*kept, chain[greedy]]


def _before(options: GenerationOptions, banned: Sequence[int]) -> Iterator[Filter]:
    bias = {token: by for token, by in (options.logit_bias or {}).items() if by > -math.inf}
    if options.processors or bias:
        from localllm.generation.filters.bias import Bias, Process

        yield from (Process(function) for function in options.processors)
        if bias:
            yield Bias(tuple(bias), tuple(bias.values()))
    out = {*banned, *((options.logit_bias or {}).keys() - bias.keys())}
    if out:
        yield Ban(tuple(sorted(out)))


def _penalised(options: GenerationOptions) -> bool:
    changed = options.repeat_penalty != 1 or options.presence_penalty != 0 or options.frequency_penalty != 0
    return changed and options.repeat_last_n != 0


def _penalties(options: GenerationOptions) -> Iterator[Filter]:
    if _penalised(options):
        from localllm.generation.filters.penalties import Penalties

        yield Penalties(options.repeat_penalty, options.presence_penalty, options.frequency_penalty, options.repeat_last_n)


def _dried(options: GenerationOptions) -> bool:
    return options.dry_multiplier != 0 and options.dry_base >= 1 and options.dry_penalty_last_n != 0


def _dry(options: GenerationOptions, breakers: Breakers) -> Iterator[Filter]:
    if _dried(options):
        from localllm.generation.filters.dry import Dry

        yield Dry(options.dry_multiplier, options.dry_base, options.dry_allowed_length, options.dry_penalty_last_n, breakers)


def _top_n_sigma(options: GenerationOptions) -> Iterator[Filter]:
    if options.top_n_sigma > 0:
        from localllm.generation.filters.shape import TopNSigma

        yield TopNSigma(options.top_n_sigma)


def _top_k(options: GenerationOptions) -> Iterator[Filter]:
    if options.top_k:
        yield TopK(options.top_k)


def _typical(options: GenerationOptions) -> Iterator[Filter]:
    if options.typical_p < 1:
        from localllm.generation.filters.shape import Typical

        yield Typical(options.typical_p, options.min_keep)


def _top_p(options: GenerationOptions) -> Iterator[Filter]:
    if options.top_p < 1:
        yield TopP(options.top_p, options.min_keep)


def _min_p(options: GenerationOptions) -> Iterator[Filter]:
    if options.min_p > 0:
        yield MinP(options.min_p, options.min_keep)


def _xtc(options: GenerationOptions) -> Iterator[Filter]:
    if options.xtc_probability > 0 and options.xtc_threshold <= 0.5:
        from localllm.generation.filters.shape import XTC

        yield XTC(options.xtc_probability, options.xtc_threshold, options.min_keep)


def _temperature(options: GenerationOptions) -> Iterator[Filter]:
    if options.dynatemp_range and not options.mirostat:
        from localllm.generation.filters.shape import DynamicTemperature

        t, delta = options.temperature, options.dynatemp_range
        yield DynamicTemperature(max(0.0, t - delta), t + delta, options.dynatemp_exponent, COLDEST)
    elif options.temperature == 0:
        yield Greedy()
    elif options.temperature != 1:
        yield Temperature(options.temperature)


def _mirostat(options: GenerationOptions) -> Iterator[Filter]:
    from localllm.generation.filters.mirostat import Mirostat, Mirostat1

    yield (Mirostat1 if options.mirostat == 1 else Mirostat)(options.mirostat_tau, options.mirostat_eta)


_MAKE: dict[str, Callable[[GenerationOptions], Iterator[Filter]]] = {
    "penalties": _penalties,
    "top_n_sigma": _top_n_sigma,
    "top_k": _top_k,
    "typ_p": _typical,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
    "temperature": _temperature,
}
