"""What the metadata of all decoder families has in common -> ModelConfig. Keys and defaults are llama.cpp's (src/llama-model.cpp).

Keys that llama.cpp does not read for these families either, such as ``attention.sliding_window`` of a llama, have no effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from localllm.archs.keys import Keys
from localllm.errors import UnsupportedError
from localllm.model.config import LayerConfig, ModelConfig
from localllm.model.program import Activation, Rope
from localllm.model.weights import label

FACTORS = "rope_freqs.weight"
"""Where llama 3 files keep the divisors of the rotation's frequencies."""


def decoder(
    keys: Keys,
    *,
    rope: Literal["norm", "neox"],
    activation: Activation = "silu",
    qk_norm: bool = False,
    post_norms: bool = False,
    experts: bool = False,
    biases: Iterable[str] = (),
) -> ModelConfig:
    """A decoder whose layers are alike but for what the file lists layer by layer.

    ``experts``: the family may have a mixture of experts; the rest as in ModelConfig and Rope. Raises GGUFError, UnsupportedError.
    """
    keys.refuse("attention.causal", unless=True)
    keys.refuse("attn_logit_softcapping", unless=0)
    keys.refuse("final_logit_softcapping", unless=0)
    blocks = keys.count("block_count", high=len(keys.file.tensors))
    spare = keys.count("nextn_predict_layers", 0, low=0, high=blocks - 1)
    return ModelConfig(
        architecture=keys.architecture,
        context_length=keys.count("context_length"),
        embedding_length=keys.count("embedding_length"),
        epsilon=keys.number("attention.layer_norm_rms_epsilon", zero=True),
        layers=_layers(keys, blocks, rope, experts)[: blocks - spare],
        activation=activation,
        qk_norm=qk_norm,
        post_norms=post_norms,
        nextn_predict_layers=spare,
        biases=frozenset(biases),
    )


def _layers(keys: Keys, blocks: int, kind: Literal["norm", "neox"], experts: bool) -> tuple[LayerConfig, ...]:
    heads = keys.counts("attention.head_count", blocks)
    kv_heads = keys.counts("attention.head_count_kv", blocks, heads)
    widths = keys.counts("feed_forward_length", blocks)
    length = _key_length(keys, heads)
    scale = keys.number("attention.scale", 0, zero=True) or 1 / math.sqrt(length)
    turning = read_rope(keys, kind, length)
    expert_count = keys.count("expert_count", 0, low=0) if experts else 0
    used = keys.count("expert_used_count", high=expert_count) if expert_count else 0
    for h, k in zip(heads, kv_heads, strict=True):
        if h % k:
            keys.fail("attention.head_count_kv", k, f"a divisor of attention.head_count {h}")
    return tuple(
        LayerConfig(h, k, length, scale, turning, width, expert_count=expert_count, expert_used_count=used)
        for h, k, width in zip(heads, kv_heads, widths, strict=True)
    )


def _key_length(keys: Keys, heads: tuple[int, ...]) -> int:
    embedding = keys.count("embedding_length")
    if "attention.key_length" not in keys and embedding % heads[0]:
        keys.fail("attention.head_count", heads[0], f"a divisor of embedding_length {embedding}, or a key attention.key_length")
    length = keys.count("attention.key_length", embedding // heads[0])
    values = keys.count("attention.value_length", length)
    if values != length:
        raise UnsupportedError(f"{label(keys.file)}: keys of length {length} with values of length {values} are not supported")
    return length


def read_rope(keys: Keys, kind: Literal["norm", "neox"], length: int) -> Rope:
    """The rotation of heads of that length: none, linear or YaRN scaling, and llama 3's factors where the file has them."""
    dim = keys.count("rope.dimension_count", length, high=length)
    if dim % 2:
        keys.fail("rope.dimension_count", dim, "an even number")
    scaling = keys.text("rope.scaling.type", "linear")
    if scaling not in ("none", "linear", "yarn"):
        raise UnsupportedError(
            f"{label(keys.file)}: RoPE scaling {scaling!r} is not supported for {keys.architecture!r}; known: none, linear, yarn"
        )
    rope = Rope(
        kind=kind,
        dim=dim,
        freq_base=keys.number("rope.freq_base", 10000.0),
        freq_scale=1.0 if scaling == "none" else 1.0 / _factor(keys),
        factors=FACTORS if FACTORS in keys.file.tensors else None,
        attn_factor=keys.number("rope.scaling.attn_factor", 1.0),
    )
    return _yarn(keys, rope) if scaling == "yarn" else rope


def _factor(keys: Keys) -> float:
    old = keys.number("rope.scale_linear", 0, zero=True)
    return keys.number("rope.scaling.factor", old, zero=True) or 1.0


def _yarn(keys: Keys, rope: Rope) -> Rope:
    if rope.freq_base <= 1:
        keys.fail("rope.freq_base", rope.freq_base, "a number above 1 for YaRN")
    return replace(
        rope,
        ext_factor=keys.number("rope.scaling.yarn_ext_factor", 1.0, zero=True),
        attn_factor=rope.attn_factor * keys.number("rope.scaling.yarn_attn_factor", 1.0),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        original_context=keys.count("rope.scaling.original_context_length", keys.count("context_length")),
    )
