"""The chat template of a model file, or the one of its family where the file has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from localllm.errors import TemplateError
from localllm.text.templates import ChatTemplate
from localllm.text.vocab import KINDS, shown, strings

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# Gemma knows no system role: what it would say opens the first turn of the user.
GEMMA = (
    "{{ bos_token }}{% set pending = namespace(text='') %}{% for message in messages %}"
    "{% if message.role == 'system' %}{% set pending.text = pending.text + message.content + '\n\n' %}{% else %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ pending.text }}{{ message.content | trim }}<end_of_turn>\n{% set pending.text = '' %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_TOKENS = (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))


def template_for(metadata: Mapping[str, Any]) -> ChatTemplate:
    """The template in a file's metadata, with the texts of its BOS and EOS tokens.

    A file without one gets its family's, marked ``is_default``: Gemma's and Llama 3's by architecture and vocabulary, ChatML
    for all others. TemplateError if what the file has is no text.
    """
    key = "tokenizer.chat_template"
    source = metadata.get(key)
    if source is not None and not isinstance(source, str):
        raise TemplateError(f"{key}: a text was expected, not {shown(source)}")
    tokens = {f"{role}_token": _token(metadata, role, name) for role, name in _TOKENS}
    return ChatTemplate(source or _family(metadata), is_default=not source, **tokens)


def _family(metadata: Mapping[str, Any]) -> str:
    if str(metadata.get("general.architecture", "")).startswith("gemma"):
        return GEMMA
    return LLAMA3 if b"<|start_header_id|>" in (strings(metadata, "tokenizer.ggml.tokens") or []) else CHATML


def _token(metadata: Mapping[str, Any], role: str, name: str) -> str:
    """The text of a special token, or "" where the vocabulary has none."""
    tokens = metadata.get("tokenizer.ggml.tokens") or ()
    kind = KINDS.get(str(metadata.get("tokenizer.ggml.model")))
    id_ = metadata.get(f"tokenizer.ggml.{name}_token_id", kind.special.get(role) if kind else None)
    if not isinstance(id_, (int, np.integer)) or not 0 <= id_ < len(tokens):
        return ""
    token = tokens[int(id_)]
    return token.decode("utf-8", "replace") if isinstance(token, bytes) else str(token)
