"""Gemma 3's windows, rotations and scales."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from localllm import archs
from localllm.errors import GGUFError
from localllm.model.config import LayerConfig
from localllm.model.program import Embed, Rope
from tests.archs.fake import fake


def layers(count: int = 7, metadata: dict[str, Any] | None = None, **spec: Any) -> tuple[LayerConfig, ...]:
    return archs.configure(fake("gemma3", metadata, layers=count, **spec)).layers


def windows(count: int = 7, **metadata: Any) -> list[int]:
    return [layer.sliding_window for layer in layers(count, {f"attention.{key}": value for key, value in metadata.items()})]


def test_windows() -> None:
    assert windows(13) == [16, 16, 16, 16, 16, 0] * 2 + [16]
    assert windows(4, sliding_window_pattern=2) == [16, 0, 16, 0]
    assert windows(3, sliding_window_pattern=0) == [16, 16, 16]
    assert windows(3, sliding_window_pattern=1) == [0, 0, 0]
    assert windows(3, sliding_window_pattern=np.array([True, False, True])) == [16, 0, 16]
    assert windows(3, sliding_window_pattern=[0, 1, 1]) == [0, 16, 16]
    assert windows(3, sliding_window=0) == [0, 0, 0]
    assert windows(3, sliding_window=None) == [0, 0, 0]


@pytest.mark.parametrize("value", [[True], np.array([1, 2, 1]), [0.5, 1, 1], "yes", -1])
def test_refused_patterns(value: Any) -> None:
    with pytest.raises(GGUFError, match=r"'gemma3\.attention\.sliding_window_pattern' is"):
        windows(3, sliding_window_pattern=value)


def test_rotations() -> None:
    found = layers(6, {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0})
    assert found[0].rope == Rope("neox", 16, 10000.0)
    assert found[5].rope == Rope("neox", 16, 1e6, freq_scale=0.125)
    own = layers(6, {"rope.freq_base_swa": 500.0})
    assert own[0].rope == Rope("neox", 16, 500.0) and own[5].rope == Rope("neox", 16, 1e6)


def test_scales() -> None:
    config = archs.configure(fake("gemma3"))
    assert config.embedding_scale == 8 and config.activation == "gelu" and config.qk_norm and config.post_norms
    assert config.layers[0].scale == 1 / math.sqrt(16)
    embed = archs.build(fake("gemma3")).ops[0]
    assert isinstance(embed, Embed) and embed.scale == 8


def test_scale_of_27b() -> None:
    assert layers(62, head_dim=8)[0].scale == 1 / math.sqrt(64 // 4)
    assert layers(61, head_dim=8)[0].scale == 1 / math.sqrt(8)
    assert layers(62, {"attention.scale": 0.5}, head_dim=8)[0].scale == 0.5
