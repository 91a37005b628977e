"""What programs rely on: names, signatures, and that the package costs nothing to import."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from typing import get_type_hints

import pytest

import localllm
from localllm import api, load_options
from localllm.generation.options import GenerationOptions
from localllm.generation.results import Event, Logprob, Result, Timings, Usage

HEAVY = ("numpy", "numba", "llvmlite", "gguf", "tokenizers", "sentencepiece", "jinja2", "click", "rich", "prompt_toolkit", "asyncio")


def parameters(function: object) -> str:
    """The signature without annotations."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def test_the_names() -> None:
    names = ["ChatTemplate", "Event", "LocalLLMError", "Model", "Result", "Tokenizer", "generate", "load", "open_gguf", "quant"]
    assert localllm.__all__ == names
    assert sorted(dir(localllm)) == sorted([*localllm.__all__, "__version__"])
    for name in localllm.__all__:
        assert getattr(localllm, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        localllm.nothing  # noqa: B018


def test_the_signatures() -> None:
    load = "(name_or_path, *, backend='auto', threads=None, ctx=None, batch=512, progress=None, force=False, cache_ram=None, "
    load += "cache_disk=None, cache_type_k=None, cache_type_v=None, draft=None, **misspelled)"
    assert parameters(localllm.load) == load
    assert parameters(localllm.generate) == "(name_or_path, prompt, *, n=None, **options)"
    model = localllm.Model
    assert parameters(model.generate) == "(self, prompt, *, n=None, progress=None, **options)"
    assert parameters(model.stream) == "(self, prompt, *, n=None, progress=None, **options)"
    assert parameters(model.logits) == "(self, tokens, *, last=1)"
    assert parameters(model.line) == parameters(model.close) == "(self)"
    assert parameters(localllm.open_gguf) == "(path)"
    assert parameters(localllm.quant.dequantize) == "(blocks, type)"
    assert parameters(localllm.Tokenizer.from_gguf) == "(file)"
    assert parameters(localllm.Tokenizer.encode) == "(self, text, add_special=True, parse_special=False)"
    assert parameters(localllm.Tokenizer.decode) == "(self, ids, special=False)"


def test_the_options_and_their_defaults() -> None:
    assert {field.name: field.default for field in fields(load_options.LoadOptions)} == {
        "backend": "auto",
        "threads": None,
        "ctx": None,
        "batch": 512,
        "progress": None,
        "force": False,
        "cache_ram": None,
        "cache_disk": None,
        "cache_type_k": None,
        "cache_type_v": None,
        "draft": None,
    }
    assert {field.name: field.default for field in fields(GenerationOptions)} == {
        "max_tokens": None,
        "temperature": 0.8,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "typical_p": 1.0,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "min_keep": 0,
        "repeat_penalty": 1.0,
        "repeat_last_n": 64,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 64,
        "dry_sequence_breakers": ("\n", ":", '"', "*"),
        "mirostat": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "samplers": ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"),
        "logit_bias": None,
        "logits_processors": (),
        "seed": None,
        "completion": 0,
        "logprobs": None,
        "stop": (),
        "stop_token_ids": (),
        "ignore_eos": False,
        "on_full": "error",
        "keep": 0,
        "raw": False,
        "parse_special": False,
        "spec": "auto",
    }


def test_the_keywords_for_type_checkers_are_the_fields() -> None:
    assert get_type_hints(load_options.LoadKeywords) == get_type_hints(load_options.LoadOptions)
    assert sorted(get_type_hints(load_options.Keywords)) == sorted(
        (*load_options.LOAD_NAMES, *(field.name for field in fields(GenerationOptions)))
    )
    given = inspect.signature(api.load).parameters
    assert tuple(given)[1:-1] == load_options.LOAD_NAMES
    assert [given[field.name].default for field in fields(load_options.LoadOptions)] == [
        field.default for field in fields(load_options.LoadOptions)
    ]


def test_the_fields_of_what_comes_back() -> None:
    assert [field.name for field in fields(Event)] == ["text", "token", "result", "logprob", "completion"]
    assert [field.name for field in fields(Logprob)] == ["token", "logprob", "top"]
    names = ["text", "tokens", "finish_reason", "usage", "timings", "seed", "stop", "completion", "logprobs"]
    assert [field.name for field in fields(Result)] == [*names, "dropped_tokens", "dropped_turns", "speculation"]
    assert [field.name for field in fields(Usage)] == ["prompt_tokens", "completion_tokens", "cached_tokens", "cache"]
    assert [field.name for field in fields(Timings)] == ["prompt_seconds", "completion_seconds", "prompt_tokens", "completion_tokens"]


def test_every_error_is_a_localllm_error() -> None:
    from localllm import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) >= 13
    assert all(issubclass(kind, localllm.LocalLLMError) for kind in kinds)


@pytest.mark.parametrize("statement", ["import localllm", "import localllm; localllm.__version__, dir(localllm), localllm.LocalLLMError"])
def test_importing_costs_nothing(statement: str) -> None:
    code = f"import sys; {statement}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_the_surface_does_not_import_what_a_model_may_not_need() -> None:
    late = ("numba", "gguf", "tokenizers", "sentencepiece", "jinja2", "rich", "prompt_toolkit")
    code = f"import sys; from localllm import load, generate, Model, Result; print(*sorted(set({late!r}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
