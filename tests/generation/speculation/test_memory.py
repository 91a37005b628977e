from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localllm.generation.speculation.automaton import SuffixAutomaton
from localllm.generation.speculation.memory import Memory, place


def learnt(file: Path) -> Memory:
    memory = Memory(file)
    for _ in range(20):
        memory.costs.took(1, 0.05)
        memory.costs.took(4, 0.08)
    return memory


def test_costs_outlive_the_process(tmp_path: Path) -> None:
    file = tmp_path / "speed" / "a.json"
    first = learnt(file)
    first.save()
    second = Memory(file)
    for m in (1, 4, 100):
        assert second.costs.seconds(m) == pytest.approx(first.costs.seconds(m), rel=1e-3)
    assert list(file.parent.iterdir()) == [file]


def test_nothing_is_written_where_nothing_was_learnt(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    Memory(file).save()
    assert not file.exists()
    memory = learnt(file)
    memory.save()
    file.unlink()
    memory.save()
    assert not file.exists()


GOOD: dict[str, Any] = {"version": 1, "seconds": 0.05, "ratios": {str(n): 1.5 for n in (1, 2, 4, 8, 16)}, "bulk": 0.1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "\udcff",
        json.dumps({**GOOD, "version": 0}),
        json.dumps({**GOOD, "seconds": None}),
        json.dumps({**GOOD, "seconds": -1.0}),
        json.dumps({**GOOD, "seconds": float("nan")}),
        json.dumps({**GOOD, "ratios": [1]}),
        json.dumps({**GOOD, "ratios": {"1": 1.0}}),
        json.dumps({**GOOD, "bulk": "0.1"}),
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_no_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert Memory(file).costs.level is None
    file.write_text(json.dumps(GOOD))
    assert Memory(file).costs.seconds(2) == pytest.approx(0.075)


def test_a_place_that_can_not_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = learnt(tmp_path / "file" / "a.json")
    memory.save()
    assert (tmp_path / "file").read_text() == ""


def test_the_file_depends_on_what_costs_depend_on() -> None:
    def tensors(kind: str, rows: int) -> dict[str, Any]:
        return {"a": SimpleNamespace(name="a", type=kind, shape=(rows, 32))}

    keys = [("cpu", 2, "Q4_0", 64), ("cpu", 1, "Q4_0", 64), ("cpu", 2, "Q8_0", 64), ("cpu", 2, "Q4_0", 65), ("mlx", 2, "Q4_0", 64)]
    files = [place(backend, threads, tensors(kind, rows)) for backend, threads, kind, rows in keys]
    assert len(set(files)) == len(files)
    assert place("cpu", 2, tensors("Q4_0", 64)) == files[0]


def test_the_text_of_the_last_answer_is_kept_where_the_next_begins_with_it() -> None:
    memory, automaton = Memory(), SuffixAutomaton()
    for token in (1, 2, 3):
        automaton.append(token)
    memory.keep(automaton)
    assert memory.take([1, 2, 3, 4]) is automaton
    assert memory.take([1, 2, 3, 4]).tokens == []  # it has an owner
    memory.keep(automaton)
    assert memory.take([1, 2, 4]).tokens == []


def test_what_texts_have_taught_can_be_left_behind() -> None:
    memory = Memory()
    memory.costs.took(1, 0.05)
    memory.ngrams.saw(0, True)
    other = memory.anew()
    assert other.costs is memory.costs
    assert other.ngrams.share(0) < memory.ngrams.share(0)
