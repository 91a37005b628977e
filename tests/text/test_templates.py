"""Chat templates: all recorded renderings, and the sandbox."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from localllm.errors import OptionError, TemplateError
from localllm.text import ChatTemplate
from localllm.text import templates as module
from tests.conftest import ROOT

FOLDER = Path(os.environ.get("LOCALLLM_GOLDENS") or ROOT.parent / "shared" / "models") / "templates"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize("source", sorted(FOLDER.glob("*.jinja")), ids=lambda path: path.stem)
def test_recorded(source: Path) -> None:
    conversations = json.loads((FOLDER / "conversations.json").read_text(encoding="utf-8"))
    template = ChatTemplate(source.read_text(encoding="utf-8"))
    for name, want in json.loads(source.with_suffix(".json").read_text(encoding="utf-8")).items():
        given: dict[str, Any] = {**conversations["variables"], **conversations["cases"][name]}
        if "text" in want:
            assert template.render(now=conversations["now"], **given) == want["text"], name
            continue
        with pytest.raises(TemplateError) as caught:
            template.render(now=conversations["now"], **given)
        if want["error"] == "TemplateError":
            assert " ".join(str(want.get("message", "")).split()) in " ".join(str(caught.value).split())


def render(source: str, **variables: Any) -> str:
    return ChatTemplate(source, bos_token="<s>").render(HELLO, **variables)


def test_what_templates_find() -> None:
    assert render("{{ bos_token }}{{ messages[0].content }}{{ add_generation_prompt }}{{ tools }}") == "<s>HelloTrueNone"
    assert render("{{ bos_token }}{{ x }}", bos_token="!", x=3) == "!3"
    assert render("{{ strftime_now('%d %B %Y') }}", now="2026-01-15T12:34:56") == "15 January 2026"
    assert render("{{ strftime_now('%Y') }}", now=datetime(1999, 1, 1)) == "1999"
    assert render("{{ strftime_now('%Y') }}") >= "2025"
    assert render("{{ {'a': '<\u00e9>', 'b': none} | tojson }}") == '{"a": "<\u00e9>", "b": null}'
    assert render("{{ [1] | tojson(indent=2) }}") == "[\n  1\n]"
    assert render("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "012"
    assert render("a\n  {% generation %}\nb\n  {% endgeneration %}\nc") == "a\nb\nc"
    assert render("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}") == "21"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must\nalternate') }}", "refuses this conversation: roles must alternate"),
        ("{% if %}", r"fails: .*\(line 1\)"),
        ("{{ 1 / 0 }}", "fails: division by zero"),
        ("{{ messages[0].content.x.y }}", "fails: 'str object' has no attribute 'x'"),
        ("{{ ''.__class__.__mro__ }}", "fails: access to attribute '__class__'"),
        ("{{ messages.append(1) }}", "fails: .*append"),
        ("{% for i in range(1000000000) %}{% endfor %}", "fails: .*[Rr]ange"),
        ("{{ now() }}", "fails: 'now' is undefined"),
        ("{% include 'x' %}", "fails: "),
    ],
)
def test_failures(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as caught:
        render(source)
    assert "\n" not in str(caught.value)


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OUTPUT", 100)
    assert len(render("{% for i in range(100) %}a{% endfor %}")) == 100
    with pytest.raises(TemplateError, match="more than 100 characters"):
        render("{% for i in range(101) %}a{% endfor %}")


def test_a_time_that_is_none() -> None:
    with pytest.raises(OptionError, match="'yesterday'"):
        render("", now="yesterday")


def test_text_of_a_user_is_no_template() -> None:
    source = "{{ messages[0].content }}"
    assert ChatTemplate(source).render([{"role": "user", "content": "{{ 1 + 1 }}<b>"}]) == "{{ 1 + 1 }}<b>"
