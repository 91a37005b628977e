"""``localllm.bench`` and its command: the right tests, costs and shares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import localllm
from localllm import bench
from localllm.archs import build
from localllm.cli import bench as command
from tests import tiny


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "m.gguf", type="Q8_0", embed=64, ff=96, heads=4, kv_heads=2, layers=2)


def test_costs_are_those_of_the_matrices(path: Path) -> None:
    with localllm.open_gguf(path) as file:
        program = build(file)
        cost = bench.work(program, file)
        layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 96
        assert cost.macs == 2 * layer + 64 * program.vocab
        assert cost.last == cost.macs - layer - 64 * (64 + 32 + 32)
        assert cost.read == cost.macs * 34 // 32


def test_experts_count_as_far_as_they_are_used(tmp_path: Path) -> None:
    with localllm.open_gguf(tiny.write(tmp_path / "e.gguf", embed=64, ff=96, experts=4, layers=1)) as file:
        program = build(file)
        attention = 64 * (64 + 32 + 32 + 64)
        assert bench.work(program, file).macs == attention + 4 * 64 + 2 * 3 * 64 * 96 + 64 * program.vocab


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_report(path: Path, backend: str) -> None:
    report = bench.bench(str(path), prompt=20, decode=3, depth=10, repeats=2, profile=True, backend=backend, threads=1)
    assert [figure.test for figure in report.results] == ["pp20@d10", "tg3@d10"]
    for figure in report.results:
        assert 0 < figure.tps_min <= figure.tps <= figure.tps_max
        assert figure.gbps > 0 and figure.gmacs > 0
    assert report.threads == 1 and report.model == "m.gguf"
    assert (report.machine is not None) == (backend == "cpu")
    if report.machine:
        assert report.machine.read_gbps > 0.1 and report.machine.int8_gmacs > 0.1
    assert list(report.profile) == ["pp20@d10", "tg3@d10"]
    assert all(seconds > 0 for shares in report.profile.values() for seconds in shares.values())
    assert any("matmul few Q8_0" in kind or kind == "Linear" for kind in report.profile["tg3@d10"])


def test_the_object(path: Path, run: Callable[..., object]) -> None:
    done = run("bench", path, "-p", 8, "-n", 2, "-r", 1, "-t", 1, "--json")
    record = json.loads(done.out.splitlines()[-1])  # type: ignore[attr-defined]
    assert set(record) == {"model", "threads", "machine", "results"}
    assert set(record["machine"]) == {"read_gbps", "int8_gmacs"}
    assert [set(result) for result in record["results"]] == [{"test", "tps", "tps_min", "tps_max", "gbps", "gmacs"}] * 2
    assert [result["test"] for result in record["results"]] == ["pp8", "tg2"]


def test_words_say_what_bounds() -> None:
    machine = bench.Machine(20.0, 400.0)
    figures = (bench.Figure("pp512", 200.0, 190.0, 210.0, 0.5, 300.0), bench.Figure("tg64", 17.0, 16.0, 18.0, 17.0, 17.0))
    lines = command.describe(bench.Report("m.gguf", 2, machine, figures, {}))
    assert "pp512 is bound by multiplying: it reaches 75% of what this machine can do" in lines
    assert "tg64 is bound by reading the weights: it reaches 85% of what this machine can do" in lines
