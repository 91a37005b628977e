from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
import pytest

from localllm.backends.base import Float
from localllm.errors import OptionError
from localllm.generation import options


def test_defaults_are_llama_cpps() -> None:
    made = options.make({})
    assert (made.temperature, made.top_k, made.top_p, made.min_p) == (0.8, 40, 0.95, 0.05)
    assert (made.repeat_penalty, made.repeat_last_n, made.presence_penalty, made.frequency_penalty) == (1.0, 64, 0.0, 0.0)
    assert (made.max_tokens, made.seed, made.stops) == (None, None, ())
    assert (made.dry_multiplier, made.dry_base, made.dry_allowed_length, made.dry_penalty_last_n) == (0.0, 1.75, 2, 64)
    assert made.dry_sequence_breakers == ("\n", ":", '"', "*")
    assert (made.typical_p, made.top_n_sigma, made.xtc_probability, made.xtc_threshold) == (1.0, -1.0, 0.0, 0.1)
    assert (made.dynatemp_range, made.dynatemp_exponent, made.min_keep) == (0.0, 1.0, 0)
    assert (made.mirostat, made.mirostat_tau, made.mirostat_eta) == (0, 5.0, 0.1)
    assert ";".join(made.samplers) == "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("temprature", "temperature"),
        ("temp", "temperature"),
        ("max_token", "max_tokens"),
        ("n_predict", "max_tokens"),
        ("topk", "top_k"),
        ("Seed", "seed"),
        ("repetition_penalty", "repeat_penalty"),
        ("stop_strings", "stop"),
        ("n_probs", "logprobs"),
        ("typ_p", "typical_p"),
        ("mirostat_lr", "mirostat_eta"),
        ("logits_processor", "logits_processors"),
    ],
)
def test_a_misspelled_option_is_told_the_right_one(wrong: str, right: str) -> None:
    with pytest.raises(OptionError, match=f"'{wrong}' does not exist; did you mean '{right}'"):
        options.make({wrong: 1})


def test_a_name_like_no_other_gets_the_list() -> None:
    with pytest.raises(OptionError, match="there are: max_tokens, temperature"):
        options.make({"xyzzy": 1})
    with pytest.raises(OptionError, match="there are"):
        options.make({"n_ctx": 1})  # what it means is not an option of a generation


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "0.8"),
        ("temperature", None),
        ("top_k", -1),
        ("top_p", 1.01),
        ("top_p", -0.01),
        ("min_p", 2),
        ("repeat_penalty", 0),
        ("repeat_last_n", -2),
        ("presence_penalty", float("-inf")),
        ("seed", -1),
        ("seed", 2**64),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [1]),
        ("stop", 7),
        ("raw", 1),
        ("ignore_eos", "yes"),
        ("typical_p", 1.5),
        ("top_n_sigma", float("nan")),
        ("xtc_probability", -0.5),
        ("dynatemp_range", -1),
        ("min_keep", -1),
        ("dry_multiplier", -0.1),
        ("dry_allowed_length", 1.5),
        ("dry_penalty_last_n", -2),
        ("dry_sequence_breakers", ["\n", ""]),
        ("mirostat", 3),
        ("mirostat_tau", "5"),
        ("samplers", 7),
        ("logit_bias", [1, 2]),
        ("logit_bias", {1: float("inf")}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {"1": 1.0}),
        ("logits_processors", ["f"]),
        ("completion", -1),
        ("logprobs", -1),
        ("stop_token_ids", 5),
        ("stop_token_ids", ["</s>"]),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"'{name}'.*expected"):
        options.make({name: value})


def test_border_values_are_allowed() -> None:
    for given in ({"top_p": 0}, {"top_p": 1}, {"min_p": 0}, {"min_p": 1}, {"top_k": 0}, {"seed": 2**64 - 1}, {"repeat_last_n": -1}):
        assert options.make(given)
    assert options.make({"seed": np.int64(5), "temperature": np.float32(0.5)}).seed == 5


def test_samplers_have_llama_cpps_names() -> None:
    assert options.make({"samplers": "temperature; top-k;nucleus;typical"}).samplers == ("temperature", "top_k", "top_p", "typ_p")
    assert options.make({"samplers": ["min_p"]}).samplers == ("min_p",)
    with pytest.raises(
        OptionError, match=r"'samplers' holds 'top_q', which is no sampler; there are: penalties, dry, top_n_sigma, top_k, "
    ):
        options.make({"samplers": "top_k;top_q"})


def test_a_ban_is_a_bias_without_end() -> None:
    assert options.make({"logit_bias": {np.int64(3): float("-inf"), 4: 1}}).logit_bias == {3: float("-inf"), 4: 1.0}


def test_one_processor_or_several() -> None:
    def same(tokens: Sequence[int], logits: Float) -> Float:
        return logits

    assert options.make({"logits_processors": same}).processors == (same,)
    assert options.make({"logits_processors": [same, same]}).processors == (same, same)


def test_defaults_give_way_to_what_is_given() -> None:
    made = options.make({"top_k": 7}, {"top_k": 20, "temperature": 0.6})
    assert (made.top_k, made.temperature, made.top_p) == (7, 0.6, 0.95)


def test_stop_is_one_string_or_several() -> None:
    assert options.make({"stop": "END"}).stops == ("END",)
    assert options.make({"stop": ["a", "b"]}).stops == ("a", "b")


def test_the_keywords_for_type_checkers_are_the_fields() -> None:
    hints = get_type_hints(options.GenerationKeywords)
    assert list(hints) == [field.name for field in fields(options.GenerationOptions)]
    assert hints == get_type_hints(options.GenerationOptions)
