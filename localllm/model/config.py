"""What a model is, once its metadata has been read: the input of the one emitter (emit.py).

Names are those of GGUF's metadata keys. A layer carries everything that can differ from its neighbours, so that sliding windows
in five layers of six, or experts in some layers only, are data and no branch anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from localllm.model.program import Activation, Rope


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """One block of a decoder.

    ``key_length``: width d of a head, of keys and values alike. ``scale`` multiplies q.k. ``sliding_window``: 0 is none.
    ``feed_forward_length``: width F, of each expert where there are any. ``expert_count``: 0 is a plain feed-forward network.
    """

    head_count: int
    head_count_kv: int
    key_length: int
    scale: float
    rope: Rope | None
    feed_forward_length: int
    sliding_window: int = 0
    expert_count: int = 0
    expert_used_count: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder.

    ``embedding_scale`` multiplies the embedded tokens. ``qk_norm``: each head's q and k pass an RMSNorm before they are rotated.
    ``post_norms``: what attention and the feed-forward network give passes a norm before it is added.
    ``nextn_predict_layers``: blocks behind ``layers`` that only predict further tokens; the text does not need them.
    ``biases``: matrices of a layer whose bias must be there; any other bias is used where the file has it.
    """

    architecture: str
    context_length: int
    embedding_length: int
    epsilon: float
    layers: tuple[LayerConfig, ...]
    activation: Activation = "silu"
    embedding_scale: float = 1.0
    qk_norm: bool = False
    post_norms: bool = False
    nextn_predict_layers: int = 0
    biases: frozenset[str] = frozenset()
