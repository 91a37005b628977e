"""The benchmark of guessing ahead, on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import speculation
from tests import tiny


def test_rounds_are_added_and_a_table_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation, "PROMPTS", tmp_path)
    (tmp_path / "completion-a.txt").write_text("the river the river the river\n")
    (tmp_path / "prose-b.txt").write_text("Why is the sky blue?")
    model, out = tiny.write(tmp_path / "m.gguf"), tmp_path / "results" / "s.json"
    arguments = [str(model), "--draft", str(model), "-n", "12", "-r", "1", "-t", "1", "-o", str(out)]
    for more in ([], ["-p", "prose-b"]):
        ran = CliRunner().invoke(speculation.main, [*arguments, *more], catch_exceptions=False)
        assert ran.exit_code == 0, ran.output
    found = json.loads(out.read_text())["prompts"]
    assert {name: len(each["ways"]["off"]["tps"]) for name, each in found.items()} == {"completion-a": 1, "prose-b": 2}
    assert list(found["prose-b"]["ways"]) == ["off", "ngram", "draft", "auto"]
    assert out.with_suffix(".md").read_text().count("| prose-b |") == 3
    other = CliRunner().invoke(speculation.main, [str(model), "-n", "9", "-o", str(out)])
    assert other.exit_code == 1 and "holds results of something else" in other.output
