"""Every sampler as its definition reads, in float64 and over all tokens: slow and obvious, what the real ones are compared with.

Tokens are a list of (id, logit), likeliest first, the lowest id first on ties. Semantics are llama.cpp's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

Tokens = list[tuple[int, float]]
Sampler = Callable[[Tokens], Tokens]


def ranked(tokens: Iterable[tuple[int, float]]) -> Tokens:
    return sorted(tokens, key=lambda each: (-each[1], each[0]))


def chances(tokens: Tokens) -> list[float]:
    weights = [math.exp(logit - tokens[0][1]) for _, logit in tokens]
    return [weight / math.fsum(weights) for weight in weights]


def surprise(chance: float) -> float:
    return -math.log(chance) if chance > 0 else math.inf


def entropy(tokens: Tokens) -> float:
    return math.fsum(chance * surprise(chance) for chance in chances(tokens) if chance > 0)


def top_k(tokens: Tokens, k: int) -> Tokens:
    return tokens[:k]


def top_p(tokens: Tokens, p: float, keep: int = 0) -> Tokens:
    reached = 0.0
    for n, chance in enumerate(chances(tokens), 1):
        reached += chance
        if reached >= p and n >= keep:
            return tokens[:n]
    return tokens


def min_p(tokens: Tokens, p: float, keep: int = 0) -> Tokens:
    odds = chances(tokens)
    count = sum(chance >= p * odds[0] for chance in odds)
    return tokens[: max(count, keep)]


def typical(tokens: Tokens, p: float, keep: int = 0) -> Tokens:
    odds, expected = chances(tokens), entropy(tokens)
    order = sorted(range(len(tokens)), key=lambda n: abs(surprise(odds[n]) - expected))
    reached = 0.0
    for n, place in enumerate(order, 1):
        reached += odds[place]
        if reached > p and n >= keep:
            return ranked(tokens[place] for place in order[:n])
    return tokens


def top_n_sigma(tokens: Tokens, n: float) -> Tokens:
    finite = [logit for _, logit in tokens if logit > -math.inf]
    mean = math.fsum(finite) / len(finite)
    deviation = math.sqrt(math.fsum((logit - mean) ** 2 for logit in finite) / len(finite))
    return [each for each in tokens if each[1] >= tokens[0][1] - n * deviation]


def xtc(tokens: Tokens, threshold: float, keep: int = 0) -> Tokens:
    above = sum(chance >= threshold for chance in chances(tokens))
    left = tokens[max(0, above - 1) :]
    return left if len(left) >= keep else tokens


def temperature(tokens: Tokens, t: float) -> Tokens:
    return [(token, (logit - tokens[0][1]) / t) for token, logit in tokens]


def dynamic(tokens: Tokens, low: float, high: float, exponent: float) -> Tokens:
    if len(tokens) == 1:
        return tokens
    share = max(0.0, entropy(tokens)) / math.log(len(tokens))
    return temperature(tokens, max(low + (high - low) * share**exponent, 1e-38))


def penalties(tokens: Tokens, past: Sequence[int], repeat: float, presence: float, frequency: float) -> Tokens:
    def one(token: int, logit: float) -> float:
        count = sum(each == token for each in past)
        if not count:
            return logit
        return (logit / repeat if logit > 0 else logit * repeat) - count * frequency - presence

    return ranked((token, one(token, logit)) for token, logit in tokens)


def dry(
    tokens: Tokens, past: Sequence[int], multiplier: float, base: float, allowed: int, breakers: Mapping[int, Iterable[tuple[int, ...]]]
) -> Tokens:
    """``breakers``: first id -> what may stand behind it."""
    n = len(past)
    if n <= allowed:
        return tokens
    limit = n
    for back in range(n):
        fits = [len(t) for t in breakers.get(past[n - 1 - back], ()) if tuple(past[n - back : n - back + len(t)]) == t and len(t) <= back]
        if fits:
            limit = back - max(fits)
            break
    if limit < allowed:
        return tokens
    longest: dict[int, int] = {}
    for end in range(n - 1):
        length = next((k for k in range(end + 1) if past[end - k] != past[n - 1 - k]), end + 1)
        length = min(length, limit)
        if length >= allowed:
            longest[past[end + 1]] = max(length, longest.get(past[end + 1], 0))

    def one(token: int, logit: float) -> float:
        if token not in longest or () in breakers.get(token, ()):
            return logit
        exponent = longest[token] - allowed
        if base > 1.000001:
            exponent = min(exponent, int(88.7228391 / math.log(base)))
        return logit - multiplier * base**exponent

    return ranked((token, one(token, logit)) for token, logit in tokens)


def mirostat_1(tokens: Tokens, mu: float, vocabulary: int) -> Tokens:
    odds = [chance for chance in chances(tokens)[:100] if chance > 0]
    pairs = [(math.log((n + 2) / (n + 1)), math.log(odds[n] / odds[n + 1])) for n in range(len(odds) - 1)]
    s = sum(t * b for t, b in pairs) / sum(t * t for t, _ in pairs)
    k = ((s - 1) * 2**mu / (1 - vocabulary ** (1 - s))) ** (1 / s)
    return tokens[: max(1, int(min(k, len(tokens))))]


def mirostat_2(tokens: Tokens, mu: float) -> Tokens:
    count = next((n for n, chance in enumerate(chances(tokens)) if surprise(chance) / math.log(2) > mu), len(tokens))
    return tokens[: max(1, count)]
