from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from localllm.generation.options import make
from localllm.generation.recommended import recommended, told


def under(**values: Any) -> dict[str, Any]:
    return {f"general.sampling.{name}": value for name, value in values.items()}


def test_every_key_of_gguf_has_its_option() -> None:
    from gguf import Keys

    keys = {value for name, value in vars(Keys.General).items() if name.startswith("SAMPLING_")}
    values: dict[str, Any] = {"sequence": "top_k;temperature", "mirostat": 2, "top_k": 5, "penalty_last_n": 7}
    metadata = {key: values.get(key.rpartition(".")[2], 0.25) for key in keys}
    assert recommended(metadata) == {
        "samplers": ("top_k", "temperature"),
        "top_k": 5,
        "top_p": 0.25,
        "min_p": 0.25,
        "xtc_probability": 0.25,
        "xtc_threshold": 0.25,
        "temperature": 0.25,
        "repeat_last_n": 7,
        "repeat_penalty": 0.25,
        "mirostat": 2,
        "mirostat_tau": 0.25,
        "mirostat_eta": 0.25,
    }


def test_float32_is_told_as_it_was_meant() -> None:
    assert recommended(under(temp=float(np.float32(0.7)), top_p=float(np.float32(0.95)))) == {"temperature": 0.7, "top_p": 0.95}


@pytest.mark.parametrize(
    "nonsense",
    [
        {"top_p": 3.0},
        {"top_k": -5},
        {"temp": "hot"},
        {"temp": float("nan")},
        {"sequence": 5},
        {"sequence": "a;b"},
        {"mirostat": [1]},
        {"x": 1},
    ],
)
def test_nonsense_is_left_out(nonsense: dict[str, Any]) -> None:
    assert recommended(under(**nonsense, min_p=0.1)) == {"min_p": 0.1}


def test_samplers_that_are_not_known_are_left_out() -> None:
    assert recommended(under(sequence="infill;top-k;adaptive_p;temp")) == {"samplers": ("top_k", "temperature")}


def test_what_is_used_is_told_in_its_order() -> None:
    assert told(make({})) == "top_k 40; top_p 0.95; min_p 0.05; temperature 0.8"
    some = make({"samplers": "temp;top_k;dry", "dry_multiplier": 0.8, "logit_bias": {3: 1.0, 4: 1.0}})
    assert told(some, {"temperature"}) == (
        "logit_bias 2 tokens; temperature 0.8*; top_k 40; dry_multiplier 0.8 dry_base 1.75 dry_allowed_length 2 dry_penalty_last_n 64"
    )
    assert told(make({"mirostat": 2})) == "temperature 0.8; mirostat 2 mirostat_tau 5 mirostat_eta 0.1"
    assert told(make({"samplers": []})) == "none"
    assert told(make({"dynatemp_range": 0.3})).endswith("temperature 0.8 dynatemp_range 0.3 dynatemp_exponent 1")
