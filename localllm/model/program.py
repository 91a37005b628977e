"""A Program: what a model computes, as data that every backend reads.

A Program is a flat list of coarse operations on registers. A register holds one float32 row of a fixed width for each
row of the batch: (T, width). Weights are named by their GGUF tensor. Shapes: T rows of the batch, D model width,
H heads, K key/value heads, d head width, F feed-forward width, V vocabulary, E experts.

Weight matrices are stored as GGUF has them, (out, in): ``linear`` computes x (T, in) @ w (out, in)^T -> (T, out).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu"]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding of the first ``dim`` values of a head (Su et al. 2021; YaRN: Peng et al. 2023).

    ``kind``: "norm" rotates neighbours (2i, 2i+1), "neox" rotates (i, i + dim/2).
    ``freq_scale``: 1/factor, multiplies positions (linear scaling and YaRN's interpolation).
    ``factors``: tensor of dim/2 divisors of the frequencies (``rope_freqs.weight``), or None.
    ``ext_factor``: weight of YaRN's mix of extrapolation and interpolation (0: no YaRN, 1: YaRN);
    ``attn_factor``: extra scale of cosine and sine; ``beta_fast``, ``beta_slow``, ``original_context``: YaRN's ramp.
    """

    kind: Literal["norm", "neox"]
    dim: int
    freq_base: float
    freq_scale: float = 1.0
    factors: str | None = None
    ext_factor: float = 0.0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_context: int = 0


@dataclass(frozen=True, slots=True)
class Embed:
    """out = rows of ``weight`` (V, D) named by the token ids, times ``scale``."""

    out: str
    weight: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """out = x / sqrt(mean(x^2) + eps) * weight (Zhang & Sennrich 2019)."""

    x: str
    out: str
    weight: str
    eps: float


@dataclass(frozen=True, slots=True)
class Linear:
    """out = x @ weight^T (+ bias)."""

    x: str
    out: str
    weight: str
    bias: str | None = None


@dataclass(frozen=True, slots=True)
class Attend:
    """Causal attention with its cache: normalise q and k, rotate them, append k and v, attend.

    q (T, H*d), k and v (T, K*d) -> out (T, H*d). ``q_norm``/``k_norm``: RMSNorm weight of width d applied to each head,
    or None. ``window``: a query sees only the last ``window`` positions, itself included; 0 is all.
    ``scale`` multiplies q.k. ``layer``: which cache.
    """

    q: str
    k: str
    v: str
    out: str
    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: Rope | None
    window: int = 0
    q_norm: str | None = None
    k_norm: str | None = None
    eps: float = 0.0


@dataclass(frozen=True, slots=True)
class GLU:
    """out = act(gate) * up. "gelu" is the tanh form."""

    gate: str
    up: str
    out: str
    act: Activation


@dataclass(frozen=True, slots=True)
class MoE:
    """A mixture of feed-forward experts (Mixtral): softmax router, the best ``used`` experts, weights renormalised.

    router (E, D); gate, up (E, F, D); down (E, D, F). Experts are summed in the router's order of rank, lowest id first on ties.
    """

    x: str
    out: str
    router: str
    gate: str
    up: str
    down: str
    experts: int
    used: int
    width: int
    act: Activation


@dataclass(frozen=True, slots=True)
class Add:
    """out = a + b."""

    a: str
    b: str
    out: str


@dataclass(frozen=True, slots=True)
class Last:
    """out = the rows of x that the caller wants results of: (T, n) -> (W, n). Registers made from it have W rows."""

    x: str
    out: str


Op = Embed | RMSNorm | Linear | Attend | GLU | MoE | Add | Last


def inputs(op: Op) -> tuple[str, ...]:
    """The registers that an operation reads; it writes ``op.out``."""
    match op:
        case Embed():
            return ()
        case Attend():
            return op.q, op.k, op.v
        case GLU():
            return op.gate, op.up
        case Add():
            return op.a, op.b
        case RMSNorm() | Linear() | MoE() | Last():
            return (op.x,)


@dataclass(frozen=True, slots=True)
class Program:
    """``ops`` in order; ``widths``: every register's width; ``shapes``: every weight's shape, checked against the file
    before a backend sees it; ``result``: the register that holds the logits (W, V); ``context``: trained length."""

    ops: tuple[Op, ...]
    widths: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    result: str
    vocab: int
    context: int
