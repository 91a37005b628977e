"""benchmarks/compare.py and the script that it runs with a peer's Python, against a stand-in for the peer."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks import compare, peer
from benchmarks.compare import Run, markdown, plan, summarise
from tests import tiny
from tests.benchmarks import llama_cpp as fake


def answer(competitor: str, tps: float, test: str = "pp512", **more: Any) -> dict[str, Any]:
    return {"competitor": competitor, "file": "m.gguf", "command": competitor, "results": [{"test": test, "tps": tps, **more}]}


def test_tests_share_loads() -> None:
    assert plan(["pp512", "tg64", "pp2048", "tg32@d4096"]) == [Run(512, 64, 0), Run(2048, 0, 0), Run(0, 32, 4096)]
    assert plan(["tg64", "pp512@d9", "tg8@d9", "tg9@d9"]) == [Run(0, 64, 0), Run(512, 8, 9), Run(0, 9, 9)]


@pytest.mark.parametrize("test", ["", "pp", "pp0", "tg64@4096", "512", "pp512 "])
def test_a_test_that_is_none(test: str) -> None:
    with pytest.raises(click.BadParameter, match="tg32@d4096"):
        plan([test])


def test_medians_and_ratios() -> None:
    ceilings = {"machine": {"read_gbps": 20.0, "int8_gmacs": 400.0}}
    ours = [answer("localllm", tps, gbps=1.0, gmacs=100.0 * k) | ceilings for k, tps in enumerate((30.0, 10.0, 20.0), 1)]
    (row,) = summarise([*ours, answer("a", 10.0), answer("a", 5.0), answer("b", 40.0)])
    assert row["speeds"] == {"localllm": [20.0, 10.0, 30.0, 3], "a": [7.5, 5.0, 10.0, 2], "b": [40.0, 40.0, 40.0, 1]}
    assert row["ratio"] == {"a": 20 / 7.5, "b": 0.5}
    assert (row["read"], row["multiply"]) == (0.05, 0.5)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", fake)
    fake.LOG.clear()


def test_the_peer_does_what_ours_does(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    arguments = Namespace(model="m.gguf", threads=2, flash=False, prompt=1100, decode=3, depth=600, repeats=1)
    results = peer.measure(peer.LlamaCpp(arguments, 600 + 1100 + 3 + 8), arguments)
    assert [r["test"] for r in results] == ["pp1100@d600", "tg3@d600"]
    past = [(512, 0, 0), (88, 512, 1)]
    warm = [(512, 0, 1), *((1, i, 1) for i in range(peer.WARM + 3))]
    prompt = [*past, (512, 600, 0), (512, 1112, 0), (76, 1624, 1)]
    assert [*warm, *prompt, *past, *((1, 600 + i, 1) for i in range(peer.WARM + 3))] == fake.LOG


def test_a_file_that_the_peer_cannot_load(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    with pytest.raises(SystemExit, match=r"m\.txt"):
        peer.LlamaCpp(Namespace(model="m.txt", threads=2, flash=False), 10)


def test_a_whole_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.write(tmp_path / "m.gguf", embed=64, ff=96, layers=1)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(fake.__file__).parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(compare, "version", lambda name: "1")
    out = tmp_path / "results" / "x.json"
    options = [f"--peer=other={sys.executable}", "--test=pp8", "--test=tg2", "-t1", "-r1", f"-o{out}", "--merge"]
    (tmp_path / "llama_cpp_python-9.dist-info").mkdir()
    (tmp_path / "llama_cpp_python-9.dist-info" / "METADATA").write_text("Name: llama-cpp-python\nVersion: 9\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(tmp_path)]))
    for _ in range(2):
        done = CliRunner().invoke(compare.main, [str(model), *options])
        assert done.exit_code == 0, done.output
    record = json.loads(out.read_text("utf-8"))
    assert [(a["competitor"], a["file"]) for a in record["answers"]] == [("localllm", "m.gguf"), ("other", "m.gguf")] * 2
    assert [(row["test"], list(row["speeds"])) for row in record["table"]] == [
        ("pp8", ["localllm", "other"]),
        ("tg2", ["localllm", "other"]),
    ]
    assert all(speed[3] == 2 for row in record["table"] for speed in row["speeds"].values())
    assert record["peers"] == {"other": {"package": "llama-cpp-python", "version": "9", "system": "CPU : AVX2 = 1 |"}}
    assert record["machine"]["read_gbps"] > 0 and record["machine"]["processor"]
    assert not any(str(tmp_path) in command for command in record["commands"])
    assert out.with_suffix(".md").read_text("utf-8") == markdown(record)
    assert "2 rounds of each" in markdown(record) and "| m.gguf | tg2 |" in markdown(record)
    done = CliRunner().invoke(compare.main, [str(model), *options, "-t2"])
    assert done.exit_code and "threads" in done.output


@pytest.mark.parametrize("peer_option", ["x", "=python", "x=", "localllm=python"])
def test_a_peer_that_is_none(tmp_path: Path, peer_option: str) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    done = CliRunner().invoke(compare.main, [str(tmp_path / "m.gguf"), "--peer", peer_option])
    assert done.exit_code == 2 and "NAME=PYTHON" in done.output


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"nothing")
    done = CliRunner().invoke(compare.main, [str(tmp_path / "m.gguf"), "--peer", f"x={sys.executable}", "-o", str(tmp_path / "x.json")])
    assert done.exit_code == 1 and "m.gguf" in done.output
    assert not (tmp_path / "x.json").exists()


def test_what_was_measured_before_a_peer_failed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out = tiny.write(tmp_path / "m.gguf", embed=64, ff=96, layers=1), tmp_path / "x.json"
    monkeypatch.setattr(compare, "version", lambda name: "1")
    options = ["--test=pp8", "-t1", "-r1", f"--peer=x={tmp_path / 'none'}", f"-o{out}"]
    done = CliRunner().invoke(compare.main, [str(model), *options])
    assert done.exit_code == 1 and "none can't be run" in done.output
    assert [answer["competitor"] for answer in json.loads(out.read_text("utf-8"))["answers"]] == ["localllm"]
    again = CliRunner().invoke(compare.main, [str(model), *options])
    assert again.exit_code == 2 and "there already" in again.output


@pytest.mark.parametrize("text", ["nothing", "[]", "{}"])
def test_a_file_that_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    (tmp_path / "x.json").write_text(text)
    done = CliRunner().invoke(compare.main, [str(tmp_path / "m.gguf"), "--merge", "-o", str(tmp_path / "x.json")])
    assert done.exit_code == 1 and "no record" in done.output
