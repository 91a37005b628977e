"""The command as a program: help, version, exit codes, signals and pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from localllm import __version__
from localllm.cli.app import COMMANDS
from tests.cli.fakes import Ran

Run = Callable[..., Ran]


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"localllm {__version__}\n"
    ran = run("-h")
    assert ran.code == 0
    assert all(f"\n  {name} " in ran.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run: Run, name: str) -> None:
    ran = run(name, "-h")
    assert ran.code == 0 and ran.out.startswith(f"Usage: localllm {name} ")


@pytest.mark.parametrize("arguments", [["runn"], ["run", "--tempp", "1"], ["pull"], ["run", "-n", "many"]])
def test_misuse_is_code_2_without_a_traceback(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1


def test_python_m_and_a_light_start() -> None:
    code = "import sys, localllm.cli; localllm.cli.main(['run', '-h']); print(*sorted(sys.modules))"
    modules = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert not modules & {"numpy", "numba", "rich", "prompt_toolkit", "tokenizers", "jinja2", "gguf", "sentencepiece"}
    ran = subprocess.run([sys.executable, "-m", "localllm", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"localllm {__version__}\n"


FAKE = """
import sys, time, types, localllm
from localllm.cli import main
class Model:
    def stream(self, prompt, **options):
        yield types.SimpleNamespace(text="first ", result=None)
        for _ in range(600):
            time.sleep(0.05)
            yield types.SimpleNamespace(text="more ", result=None)
    def __enter__(self): return self
    def __exit__(self, *error): pass
class Stream:
    def __init__(self, events): self.events = events
    def __iter__(self): return self.events
    def close(self): self.events.close()
    result = types.SimpleNamespace(finish_reason="interrupted", truncated=False)
model = Model()
stream = model.stream
model.stream = lambda prompt, **options: Stream(stream(prompt, **options))
localllm.load = lambda path, **options: model
sys.exit(main(["run", __file__ if "__file__" in globals() else sys.executable, "hi"]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are another thing on Windows")
def test_ctrl_c_ends_the_answer_only() -> None:
    process = subprocess.Popen([sys.executable, "-c", FAKE], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(6) == b"first "
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out.endswith(b"\n") and err == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([sys.executable, "-m", "localllm", "list"], stdout=full, stderr=subprocess.PIPE)
    assert (ran.returncode, ran.stderr) == (3, b"error: standard output can't be written: No space left on device\n")


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_closed_streams() -> None:
    command = '"$0" -m localllm list >&- && "$0" -m localllm list 2>&- | grep -q smollm2'
    assert subprocess.run(["sh", "-c", command, sys.executable]).returncode == 0
    ran = subprocess.run(["sh", "-c", '"$0" -m localllm tokenize "$0" <&-', sys.executable], capture_output=True)
    assert ran.returncode == 3 and ran.stderr.startswith(b"error: ")


@pytest.mark.skipif(os.name == "nt", reason="a closed pipe is another error on Windows")
def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen([sys.executable, "-c", FAKE], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(6) == b"first "
    process.stdout.close()
    start = time.monotonic()
    assert process.wait(timeout=30) == 1
    assert time.monotonic() - start < 10
    assert process.stderr.read() == b""
    process.stderr.close()
