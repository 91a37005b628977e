"""Small models with random weights, written with the ``gguf`` package: the test suite's own files.

>>> tiny.write(tmp_path / "a.gguf")                                    # a llama with an spm vocabulary, float32
>>> tiny.write(path, "gemma3", type="Q4_K", types={"token_embd.weight": "Q6_K"}, embed=256, ff=512, head_dim=64)
>>> tiny.write(path, "llama", embed=72, heads=3, kv_heads=1, ff=100)   # odd widths: float formats, or Q8_0 where rows allow
>>> tiny.write(path, metadata={"llama.block_count": None})             # a key left out; a value replaces it
>>> tiny.write(path, tensors={"blk.0.ffn_up.weight": None})            # a tensor left out; an array replaces or adds one

Equal arguments give equal bytes. The texts that such models generate mean nothing, but they can be tokenized.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from localllm.quant.base import by_name
from tests import tiny_blocks, tiny_vocabulary

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")
Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a tiny model is. Lengths are GGUF's: ``embed`` D, ``ff`` F, ``head_dim`` d (0: D / heads), ``window`` for gemma3.

    ``type`` is every matrix's storage format, ``types`` overrides it by tensor name or by the name's end ("attn_q.weight");
    where a row is no multiple of the format's block, Q8_0 is taken, or else F16. ``tied``: no output.weight (None: the family's habit).
    ``bias``: biases on every matrix of a layer. ``experts``: 0, or a mixture of so many (llama). ``rope``: more rope.* keys.
    ``rope_freqs``: write rope_freqs.weight. ``vocabulary``: None leaves the file without a tokenizer; ``rows`` of token_embd then.
    ``period``: every so many layers one is global, written as sliding_window_pattern (0: not written).
    """

    family: str = "llama"
    type: str = "F32"
    types: Mapping[str, str] = field(default_factory=dict)
    layers: int = 2
    embed: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 0
    ff: int = 96
    context: int = 256
    experts: int = 0
    experts_used: int = 2
    tied: bool | None = None
    bias: bool = False
    rope: Mapping[str, Any] = field(default_factory=dict)
    rope_freqs: bool = False
    window: int = 16
    period: int = 0
    vocabulary: Literal["spm", "bpe"] | None = "spm"
    rows: int = 0
    seed: int = 0


def write(
    path: Path,
    family: str = "llama",
    *,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Array | None] | None = None,
    **spec: Any,
) -> Path:
    """Write a model and return its path. ``spec``: fields of Spec; ``metadata`` and ``tensors`` change what would be written."""
    chosen = Spec(family=family, **spec)
    return write_file(path, {**keys(chosen), **(metadata or {})}, {**weights(chosen), **(tensors or {})})


def keys(spec: Spec) -> dict[str, Any]:
    """The metadata, architecture first."""
    head_dim = spec.head_dim or spec.embed // spec.heads
    values: dict[str, Any] = {
        "context_length": spec.context,
        "embedding_length": spec.embed,
        "block_count": spec.layers,
        "feed_forward_length": spec.ff,
        "attention.head_count": spec.heads,
        "attention.head_count_kv": spec.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6 if spec.family != "llama" else 1e4,
        **{f"rope.{key}": value for key, value in spec.rope.items()},
    }
    if spec.head_dim:
        values |= {"attention.key_length": head_dim, "attention.value_length": head_dim, "rope.dimension_count": head_dim}
    if spec.family == "gemma3":
        values["attention.sliding_window"] = spec.window
        if spec.period:
            values["attention.sliding_window_pattern"] = spec.period
    if spec.experts:
        values |= {"expert_count": spec.experts, "expert_used_count": spec.experts_used}
    named = {f"{spec.family}.{key}": value for key, value in values.items()}
    words = {} if spec.vocabulary is None else tiny_vocabulary.keys(spec.vocabulary)
    return {"general.architecture": spec.family, "general.name": f"tiny {spec.family}", **named, **words}


def weights(spec: Spec) -> dict[str, Array]:
    """Every tensor: float32 arrays (norms, biases), or Stored blocks. Deviations keep activations near one."""
    rng = np.random.default_rng(spec.seed)
    rows = spec.rows or len(tiny_vocabulary.keys(spec.vocabulary or "spm")["tokenizer.ggml.tokens"])
    tied = spec.family != "llama" if spec.tied is None else spec.tied
    found: dict[str, Array] = {"token_embd.weight": _matrix(spec, rng, "token_embd.weight", (rows, spec.embed), 1 / math.sqrt(spec.embed))}
    for layer in range(spec.layers):
        found |= _layer(spec, rng, f"blk.{layer}.")
    found["output_norm.weight"] = _norm(rng, spec.embed)
    if not tied:
        found["output.weight"] = _matrix(spec, rng, "output.weight", (rows, spec.embed))
    if spec.rope_freqs:
        half = (spec.head_dim or spec.embed // spec.heads) // 2
        found["rope_freqs.weight"] = np.linspace(1, 8, half, dtype=np.float32)
    return found


class Stored(np.ndarray[Any, np.dtype[np.uint8]]):
    """Blocks of a storage format, uint8 (..., row bytes), with the ``type`` they are of."""

    type: str


def _layer(spec: Spec, rng: np.random.Generator, prefix: str) -> dict[str, Array]:
    head_dim = spec.head_dim or spec.embed // spec.heads
    q, kv = spec.heads * head_dim, spec.kv_heads * head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_q": (q, spec.embed),
        "attn_k": (kv, spec.embed),
        "attn_v": (kv, spec.embed),
        "attn_output": (spec.embed, q),
    }
    parts = {"ffn_gate": (spec.ff, spec.embed), "ffn_up": (spec.ff, spec.embed), "ffn_down": (spec.embed, spec.ff)}
    shapes |= {f"{name}_exps": (spec.experts, *shape) for name, shape in parts.items()} if spec.experts else parts
    norms = {"attn_norm": spec.embed, "ffn_norm": spec.embed}
    if spec.family in ("qwen3", "gemma3"):
        norms |= {"attn_q_norm": head_dim, "attn_k_norm": head_dim}
    if spec.family == "gemma3":
        norms |= {"post_attention_norm": spec.embed, "post_ffw_norm": spec.embed}
    found: dict[str, Array] = {f"{prefix}{name}.weight": _norm(rng, width) for name, width in norms.items()}
    if spec.experts:
        found[f"{prefix}ffn_gate_inp.weight"] = _normal(rng, (spec.experts, spec.embed), 1.0)
    for name, shape in shapes.items():
        found[f"{prefix}{name}.weight"] = _matrix(spec, rng, f"{prefix}{name}.weight", shape)
    always = ("attn_q", "attn_k", "attn_v") if spec.family == "qwen2" else ()
    biased = [name for name in shapes if name in always or (spec.bias and not spec.experts)]
    return found | {f"{prefix}{name}.bias": _normal(rng, shapes[name][:1], 0.3) for name in biased}


def _normal(rng: np.random.Generator, shape: tuple[int, ...], deviation: float) -> NDArray[np.float32]:
    return rng.standard_normal(shape, np.float32) * np.float32(deviation)


def _norm(rng: np.random.Generator, width: int) -> NDArray[np.float32]:
    return np.float32(1) + _normal(rng, (width,), 0.1)


def _matrix(spec: Spec, rng: np.random.Generator, name: str, shape: tuple[int, ...], deviation: float = 0.0) -> Array:
    deviation = deviation or 1.5 / math.sqrt(shape[-1])
    wanted = next((type for end, type in spec.types.items() if name.endswith(end)), spec.type)
    return matrix(rng, shape, wanted, deviation)


def matrix(rng: np.random.Generator, shape: tuple[int, ...], type: str, deviation: float) -> Array:
    """A random matrix in ``type``, or in Q8_0 or F16 where its rows are no whole blocks."""
    type = next(name for name in (type, "Q8_0", "F16") if shape[-1] % by_name(name).block_size == 0)
    if type == "F32":
        return _normal(rng, shape, deviation)
    stored = tiny_blocks.random(rng, shape, type, deviation).view(Stored)
    stored.type = type
    return stored


def write_file(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Array | None]) -> Path:
    """Any GGUF file: metadata (bool, int, float32, str, lists of them; None is left out), float32 or Stored tensors (None is left out)."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, str(metadata["general.architecture"]))
    for key, value in metadata.items():
        if key != "general.architecture" and value is not None:
            _put(writer, key, value)
    for name, tensor in tensors.items():
        if isinstance(tensor, Stored):
            info = by_name(tensor.type)
            shape = (*tensor.shape[:-1], tensor.shape[-1] // info.block_bytes * info.block_size)
            # Signed bytes: for unsigned ones the writer looks sizes up in its own table, which lacks the newest types.
            writer.add_tensor(name, tensor.view(np.ndarray).view(np.int8), raw_shape=shape, raw_dtype=info.id)
        elif tensor is not None:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _put(writer: Any, key: str, value: Any) -> None:
    add = {bool: writer.add_bool, int: writer.add_uint32 if not isinstance(value, int) or value >= 0 else writer.add_int32}
    add |= {float: writer.add_float32, str: writer.add_string}
    add.get(type(value), writer.add_array)(key, value)
