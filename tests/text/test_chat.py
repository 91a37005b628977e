"""The template of a file, and the defaults of families."""

from __future__ import annotations

from typing import Any

import pytest

from localllm.errors import TemplateError
from localllm.text.chat import template_for
from tests.text.vocabularies import metadata

TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]


def file(*tokens: str, arch: str = "llama", **keys: Any) -> dict[str, Any]:
    return {"general.architecture": arch, **metadata("llama", ["<unk>", "<s>", "</s>", *tokens], **keys)}


def test_the_files_own() -> None:
    template = template_for(file() | {"tokenizer.chat_template": "{{ bos_token }}|{{ eos_token }}|{{ messages[1].content }}"})
    assert template.render(TURNS) == "<s>|</s>|Hi"
    assert not template.is_default


def test_tokens_that_are_not_there() -> None:
    keys = file(bos_token_id=77) | {"tokenizer.chat_template": "[{{ bos_token }}{{ pad_token }}]"}
    assert template_for(keys).render(TURNS) == "[]"
    assert template_for({"tokenizer.chat_template": "[{{ bos_token }}]"}).render(TURNS) == "[]"


def test_chatml_is_the_default() -> None:
    template = template_for(file(arch="qwen2"))
    assert template.is_default
    assert template.render(TURNS[:2]) == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(TURNS[1:3], add_generation_prompt=False).endswith("assistant\nHello.<|im_end|>\n")
    assert template_for({}).is_default


def test_gemma_puts_the_system_text_before_the_first_turn() -> None:
    template = template_for(file(arch="gemma3"))
    assert template.is_default
    assert template.render(TURNS) == (
        "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )


def test_llama3_by_its_vocabulary() -> None:
    template = template_for(file("<|start_header_id|>"))
    assert template.render(TURNS[1:2]) == (
        "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_a_template_that_is_no_text() -> None:
    with pytest.raises(TemplateError, match="a text was expected, not 7"):
        template_for({"tokenizer.chat_template": 7})
