"""The keys that all decoders share: defaults, per-layer lists, RoPE scaling, and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localllm import archs
from localllm.errors import GGUFError, LocalLLMError, UnsupportedError
from localllm.model.config import LayerConfig, ModelConfig
from localllm.model.program import Attend, MoE, Program, Rope
from tests import tiny
from tests.archs.fake import fake


def configure(family: str = "llama", metadata: Mapping[str, Any] | None = None, **spec: Any) -> ModelConfig:
    return archs.configure(fake(family, metadata, **spec))


def rope(keys: Mapping[str, Any]) -> Rope:
    found = configure(metadata={f"rope.{key}": value for key, value in keys.items()}).layers[-1].rope
    assert found is not None
    return found


def test_defaults() -> None:
    config = configure(metadata={"rope.freq_base": None, "attention.head_count_kv": None})
    assert config.epsilon == 1e-6 and config.context_length == 256 and config.embedding_length == 64
    assert config.layers == (LayerConfig(4, 4, 16, 0.25, Rope("norm", 16, 10000.0), 96),) * 2
    assert config.embedding_scale == 1 and config.activation == "silu" and not config.qk_norm and not config.post_norms


def test_key_length_sets_head_and_rope() -> None:
    layer = configure("qwen3", head_dim=48, metadata={"rope.dimension_count": None}).layers[0]
    assert layer.key_length == 48 and layer.scale == 1 / math.sqrt(48)
    assert layer.rope == Rope("neox", 48, 1e6)


def test_partial_rope() -> None:
    assert rope({"dimension_count": 8}).dim == 8


def test_scale() -> None:
    assert configure(metadata={"attention.scale": 0.5}).layers[0].scale == 0.5
    assert configure(metadata={"attention.scale": 0.0}).layers[0].scale == 0.25


@pytest.mark.parametrize("kind", [list, np.array, lambda values: np.array(values, np.int32)])
def test_values_by_layer(kind: Any) -> None:
    keys = {"attention.head_count": kind([4, 8]), "attention.head_count_kv": kind([2, 4]), "feed_forward_length": kind([96, 32])}
    layers = configure(metadata=keys, head_dim=16).layers
    assert [(layer.head_count, layer.head_count_kv, layer.feed_forward_length) for layer in layers] == [(4, 2, 96), (8, 4, 32)]
    shapes: dict[str, tuple[int, ...] | None] = {
        "blk.1.attn_q.weight": (128, 64),
        "blk.1.attn_k.weight": (64, 64),
        "blk.1.attn_v.weight": (64, 64),
    }
    shapes |= {
        "blk.1.attn_output.weight": (64, 128),
        "blk.1.ffn_gate.weight": (32, 64),
        "blk.1.ffn_up.weight": (32, 64),
        "blk.1.ffn_down.weight": (64, 32),
    }
    program = archs.build(fake(metadata=keys, tensors=shapes, head_dim=16))
    assert {program.widths[op.q] for op in program.ops if isinstance(op, Attend)} == {64, 128}


def test_linear_scaling() -> None:
    assert rope({"scaling.type": "linear", "scaling.factor": 4.0}).freq_scale == 0.25
    assert rope({"scaling.factor": 4.0}).freq_scale == 0.25
    assert rope({"scale_linear": 8.0}).freq_scale == 0.125
    assert rope({"scaling.type": "none", "scaling.factor": 4.0}).freq_scale == 1
    assert rope({"scaling.type": "linear", "scaling.factor": 0.0}).freq_scale == 1
    assert rope({"scaling.factor": 2.0, "scaling.attn_factor": 1.5}).attn_factor == 1.5


def test_yarn() -> None:
    found = rope({"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64})
    assert found == Rope("norm", 16, 1e4, 0.25, None, ext_factor=1.0, beta_fast=32, beta_slow=1, original_context=64)
    keys = {"yarn_ext_factor": 0.5, "yarn_attn_factor": 2.0, "attn_factor": 3.0, "yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0}
    found = rope({"scaling.type": "yarn", "scaling.factor": 4.0} | {f"scaling.{key}": value for key, value in keys.items()})
    assert found == Rope("norm", 16, 1e4, 0.25, None, ext_factor=0.5, attn_factor=6, beta_fast=16, beta_slow=2, original_context=256)


def test_rope_freqs() -> None:
    program = archs.build(fake(rope_freqs=True))
    assert {op.rope.factors for op in program.ops if isinstance(op, Attend) and op.rope} == {"rope_freqs.weight"}
    assert program.shapes["rope_freqs.weight"] == (8,)
    with pytest.raises(GGUFError, match=r"'rope_freqs\.weight' has shape \(16,\), expected \(8,\)"):
        archs.build(fake(tensors={"rope_freqs.weight": (16,)}))


def test_experts() -> None:
    found = [op for op in archs.build(fake(experts=4)).ops if isinstance(op, MoE)]
    assert len(found) == 2 and (found[0].experts, found[0].used, found[0].width, found[0].act) == (4, 2, 96, "silu")


def test_biases_are_used_where_they_are() -> None:
    assert "blk.1.ffn_down.bias" in archs.build(fake(bias=True)).shapes
    only = fake(tensors={"blk.1.attn_output.bias": (64,)})
    assert [name for name in archs.build(only).shapes if name.endswith("bias")] == ["blk.1.attn_output.bias"]


REFUSED: list[tuple[str, Any, str]] = [
    ("block_count", None, "is missing"),
    ("block_count", 0, "is 0, expected a whole number from 1"),
    ("block_count", 2**31, f"is {2**31}, expected a whole number from 1 to 21"),
    ("block_count", "two", "is 'two', expected a whole number"),
    ("block_count", True, "is True, expected a whole number"),
    ("context_length", None, "is missing"),
    ("embedding_length", -64, "is -64, expected a whole number from 1"),
    ("embedding_length", 64.0, "is 64.0, expected a whole number"),
    ("attention.head_count", 0, "is 0, expected a whole number from 1"),
    ("attention.head_count", 5, "is 5, expected a divisor of embedding_length 64"),
    ("attention.head_count", [4, 4, 4], "is [4, 4, 4], expected a list of 2, one for each layer"),
    ("attention.head_count", np.array([4.0, 4.0]), "is 4.0, expected a whole number"),
    ("attention.head_count_kv", 3, "is 3, expected a divisor of attention.head_count 4"),
    ("attention.head_count_kv", np.array([2, 0]), "is 0, expected a whole number from 1"),
    ("feed_forward_length", None, "is missing"),
    ("attention.layer_norm_rms_epsilon", None, "is missing"),
    ("attention.layer_norm_rms_epsilon", math.nan, "is nan, expected a number"),
    ("attention.layer_norm_rms_epsilon", -1e-6, "is -1e-06, expected a number"),
    ("attention.key_length", 0, "is 0, expected a whole number from 1"),
    ("rope.freq_base", math.inf, "is inf, expected a number"),
    ("rope.freq_base", 0.0, "is 0.0, expected a number"),
    ("rope.freq_base", "10000", "is '10000', expected a number"),
    ("rope.dimension_count", 7, "is 7, expected an even number"),
    ("rope.dimension_count", 18, "is 18, expected a whole number from 1 to 16"),
    ("rope.scaling.type", 3, "is 3, expected a string"),
    ("rope.scaling.factor", -2.0, "is -2.0, expected a number"),
    ("expert_count", -1, "is -1, expected a whole number from 0"),
    ("nextn_predict_layers", 2, "is 2, expected a whole number from 0 to 1"),
]


@pytest.mark.parametrize(("key", "value", "message"), REFUSED)
def test_refused_metadata(key: str, value: Any, message: str) -> None:
    with pytest.raises(GGUFError, match=re.escape(f"'models/fake.gguf': metadata key 'llama.{key}' {message}")):
        archs.build(fake(metadata={key: value}))


def test_refused_experts() -> None:
    for used in (0, 5):
        with pytest.raises(GGUFError, match=rf"expert_used_count' is {used}, expected a whole number from 1 to 4"):
            archs.build(fake(experts=4, experts_used=used))


def test_refused_yarn() -> None:
    for key, value in (("scaling.original_context_length", 0), ("freq_base", 1.0), ("scaling.yarn_beta_fast", 0.0)):
        with pytest.raises(GGUFError, match=rf"llama\.rope\.{key}' is {value}"):
            rope({"scaling.type": "yarn", key: value})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.value_length", 8, "keys of length 16 with values of length 8"),
        ("rope.scaling.type", "longrope", "RoPE scaling 'longrope'"),
        ("attention.causal", False, "'llama.attention.causal' is False; only True"),
        ("final_logit_softcapping", 30.0, "'llama.final_logit_softcapping' is 30.0; only 0"),
        ("attn_logit_softcapping", [1], "'llama.attn_logit_softcapping' is [1]; only 0"),
    ],
)
def test_unsupported_metadata(key: str, value: Any, message: str) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        archs.build(fake(metadata={key: value}))


VALUES = st.one_of(
    st.integers(-(2**40), 2**40),
    st.sampled_from([0, 1, 2, 16, 64, 2**31 - 1, 2**63, -1, 0.0, 1e-45, 1e38, math.nan, math.inf, True, "", "yarn", "x" * 500, "a\nb"]),
    st.floats(),
    st.lists(st.integers(-2, 70), max_size=4),
    st.lists(st.integers(0, 100), min_size=2, max_size=2).map(np.array),
    st.lists(st.text(max_size=3), max_size=3),
)
WRITTEN = {
    key.split(".", 1)[1] for family in tiny.FAMILIES for key in tiny.keys(tiny.Spec(family=family, period=3)) if key.startswith(family)
}
OTHERS = (
    *("attention.key_length", "attention.value_length", "attention.scale", "expert_count", "expert_used_count", "nextn_predict_layers"),
    *("rope.dimension_count", "rope.freq_base_swa", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length"),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(tiny.FAMILIES), st.dictionaries(st.sampled_from([*sorted(WRITTEN), *OTHERS]), VALUES, min_size=1, max_size=3))
def test_any_metadata_builds_or_is_refused_in_one_line(family: str, metadata: dict[str, Any]) -> None:
    file = fake(family, metadata, vocabulary=None, rows=7)
    try:
        assert isinstance(archs.build(file), Program)
    except LocalLLMError as error:
        assert "\n" not in str(error) and len(str(error)) < 400 and "fake.gguf" in str(error)
