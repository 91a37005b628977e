"""How fast a model runs here, and what share of the machine that is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from localllm import api
from localllm.backends.base import Progress, TensorSource
from localllm.generation.stepper import Stepper
from localllm.gguf import open_gguf
from localllm.model.program import Last, Linear, MoE, Program

WARM = 4
"""Tokens that are decoded before the clock starts."""
WARM_PROMPT = 512
"""Tokens of a prompt that does not count, before the first that does: memory is touched for the first time there."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a token costs: ``read`` bytes of the file's matrices, ``macs`` multiply-adds with them; ``last`` of those for a row whose logits
    are wanted only."""

    read: int
    macs: int
    last: int


@dataclass(frozen=True, slots=True)
class Figure:
    """``test``: pp512 (a prompt of 512 tokens), tg64 (64 tokens one by one), tg32@d4096 (behind 4096 others). ``tps``: median of tokens a
    second, ``tps_min``, ``tps_max``; ``gbps``: 10^9 bytes of weights read a second; ``gmacs``: 10^9 multiply-adds a second."""

    test: str
    tps: float
    tps_min: float
    tps_max: float
    gbps: float
    gmacs: float


@dataclass(frozen=True, slots=True)
class Machine:
    """Medians of the ceilings measured between the tests: reading memory, and multiplying bytes."""

    read_gbps: float
    int8_gmacs: float


@dataclass(frozen=True, slots=True)
class Report:
    """``model``: the file's name; ``threads``; ``machine``: None where the backend can't measure it; ``profile``: if asked for, seconds
    of one run of each test by kind of work, longest first."""

    model: str
    threads: int
    machine: Machine | None
    results: tuple[Figure, ...]
    profile: Mapping[str, Mapping[str, float]]


def work(program: Program, source: TensorSource) -> Work:
    """What a token costs, counted over the Program. Of a mixture of experts only those count that a token uses."""
    read = macs = last = 0
    wanted = False
    for op in program.ops:
        wanted = wanted or isinstance(op, Last)
        for name, share in _matrices(op):
            size = round(share * prod(program.shapes[name]))
            read += round(share * source.tensors[name].nbytes)
            macs += size
            last += size if wanted else 0
    return Work(read, macs, last)


def _matrices(op: object) -> list[tuple[str, float]]:
    if isinstance(op, Linear):
        return [(op.weight, 1.0)]
    if isinstance(op, MoE):
        return [(op.router, 1.0), *((name, op.used / op.experts) for name in (op.gate, op.up, op.down))]
    return []


def bench(
    path: str,
    *,
    prompt: int = 512,
    decode: int = 64,
    depth: int = 0,
    repeats: int = 5,
    profile: bool = False,
    progress: Progress | None = None,
    **load: object,
) -> Report:
    """Time a prompt of ``prompt`` tokens and ``decode`` tokens one by one, behind ``depth`` others, ``repeats`` times in turn (0: leave
    one out). ``load``: keywords of ``localllm.load``. The ceilings of the machine are measured between the tests, in the same minute."""
    with open_gguf(path) as file, api.load(path, progress=progress, **{"ctx": depth + prompt + decode + WARM, **load}) as model:  # type: ignore[arg-type]
        threads = model.threads
        meter = _meter(model.backend, threads)
        cost = work(model.program, file)
        tests = _tests(model.line, model.program.vocab, prompt, decode, depth)
        for _, _, run in _tests(model.line, model.program.vocab, min(prompt, WARM_PROMPT), min(decode, 1), 0):
            run()
        times: dict[str, list[float]] = {name: [] for name, _, _ in tests}
        ceilings: list[Machine] = []
        for done in range(repeats):
            for name, _, run in tests:
                times[name].append(run())
            if meter:
                ceilings.append(meter())
            if progress:
                progress("bench", done + 1, repeats)
        figures = tuple(_figure(name, n, times[name], cost) for name, n, _ in tests)
        shares = {name: model.profile(run) for name, _, run in tests} if profile else {}
    return Report(file.path.name, threads, _median(ceilings), figures, shares)


def _tests(line: Callable[[], Stepper], vocab: int, prompt: int, decode: int, depth: int) -> list[tuple[str, int, Callable[[], float]]]:
    rng = np.random.default_rng(0)
    behind = f"@d{depth}" if depth else ""
    past, tokens, one_by_one = (rng.integers(0, vocab, n).tolist() for n in (depth, prompt, decode + WARM))
    tests: list[tuple[str, int, Callable[[], float]]] = []
    if prompt:
        tests.append((f"pp{prompt}{behind}", prompt, lambda: _prompt(line, past, tokens)))
    if decode:
        tests.append((f"tg{decode}{behind}", decode, lambda: _decode(line, past, one_by_one)))
    return tests


def _prompt(new_line: Callable[[], Stepper], past: Sequence[int], tokens: Sequence[int]) -> float:
    with new_line() as line:
        if past:
            line.feed(past)
        started = time.perf_counter()
        line.feed(tokens)
        return time.perf_counter() - started


def _decode(new_line: Callable[[], Stepper], past: Sequence[int], tokens: Sequence[int]) -> float:
    with new_line() as line:
        if past:
            line.feed(past)
        for token in tokens[:WARM]:
            line.feed([token])
        started = time.perf_counter()
        for token in tokens[WARM:]:
            line.feed([token])
        return time.perf_counter() - started


def _meter(backend: str, threads: int) -> Callable[[], Machine] | None:
    if backend != "cpu":
        return None
    from localllm.backends.cpu.machine import Meter

    meter = Meter(threads)

    def measure() -> Machine:
        found = meter.measure()
        return Machine(found.read_gbps, found.int8_gmacs)

    return measure


def _median(found: Sequence[Machine]) -> Machine | None:
    if not found:
        return None
    return Machine(statistics.median(m.read_gbps for m in found), statistics.median(m.int8_gmacs for m in found))


def _figure(name: str, n: int, seconds: Sequence[float], cost: Work) -> Figure:
    typical = statistics.median(seconds)
    decoding = name.startswith("tg")
    passes = n if decoding else 1
    macs = n * cost.macs if decoding else n * (cost.macs - cost.last) + cost.last
    speeds = [n / s for s in seconds]
    return Figure(name, n / typical, min(speeds), max(speeds), passes * cost.read / typical / 1e9, macs / typical / 1e9)
