"""What a loaded model takes of the machine, each in a process of its own: modules, processor time, memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny

_SLEEP = """
import time, os
from pathlib import Path
def ticks():
    others = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    fields = [(task / "stat").read_text().rsplit(")", 1)[1].split() for task in others]
    return [f[0] for f in fields], sum(int(f[11]) + int(f[12]) for f in fields)
time.sleep(0.5)
states, before = ticks()
time.sleep(1.5)
print(len(states), "".join(sorted(set(states))), ticks()[1] - before)
"""
_MEMORY = """
from localllm.backends import get
from localllm.backends.base import Options
from localllm.footprint import footprint
from localllm.gguf import open_gguf
with open_gguf(PATH) as file:
    found = footprint(file, "cpu")
    weights = sum(tensor.nbytes for tensor in file.tensors.values())
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(weights, 600 * found.per_token, 1024 * int(status["VmRSS"].split()[0]), 1024 * int(status["VmHWM"].split()[0]))
"""
_CONTEXT = """
import localllm
with localllm.load(PATH, ctx=CTX, threads=1, backend="cpu") as model, model.line() as line:
    line.feed([5] * 1000)
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(1024 * int(status["VmRSS"].split()[0]))
"""


def after_a_token(path: Path, code: str, prompt: str = "a") -> str:
    """What ``code`` prints in a process that has loaded the model and answered with a few tokens."""
    start = f"PATH = {str(path)!r}\nimport sys, localllm\nmodel = localllm.load(PATH, threads=2, backend='cpu')\n"
    start += f"model.generate({prompt!r}, raw=True, max_tokens=4)\n"
    done = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("models") / "a.gguf"
    tiny.write(path, type="Q8_0", vocabulary="bpe")
    after_a_token(path, "")
    return path


def test_a_warm_start_imports_only_what_it_uses(path: Path) -> None:
    unused = {"numba", "gguf", "sentencepiece", "rich", "jinja2", "prompt_toolkit", "concurrent.futures", "importlib.metadata", "difflib"}
    modules = after_a_token(path, "print(*sys.modules)").split()
    assert not unused & set(modules)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_idle_model_takes_no_processor_time(path: Path) -> None:
    threads, states, ticks = after_a_token(path, _SLEEP).split()
    assert int(threads) >= 1
    assert states == "S"
    assert int(ticks) <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_context_that_is_not_used_takes_no_memory(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "a.gguf", layers=6, heads=8, kv_heads=8, head_dim=64, context=32768)  # 12 kB a token, 400 MB for all

    def resident(ctx: int) -> int:
        code = f"PATH, CTX = {str(path)!r}, {ctx}\n{_CONTEXT}"
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    resident(1024)  # a process that compiles kernels has the compiler in memory
    assert resident(32768) < resident(1024) + 8e6


@pytest.mark.model
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"])
def test_memory_is_the_weights_and_little_more(model_file: Callable[[str], Path], name: str) -> None:
    path = model_file(name)
    after_a_token(path, "")  # a process that compiles kernels has the compiler in memory
    weights, cache, resident, peak = map(int, after_a_token(path, _MEMORY, "word " * 590).split())
    assert resident <= peak <= 1.05 * weights + cache + 250e6, (weights, cache, resident, peak)
