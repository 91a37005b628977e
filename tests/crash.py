"""A process that has its children killed while they write lines to disk, and lets others start from what is left.

python -m tests.crash MODEL FOLDER ROUNDS prints what was seen, as JSON. Every child is a fork of one that has imported all and computed
nothing, since imports would take most of the time.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import localllm
from localllm.generation import saving
from localllm.generation.radix import array
from localllm.store import folders
from localllm.store.kv import LineFolder

_OPTIONS: dict[str, Any] = {"seed": 1, "temperature": 1, "max_tokens": 4, "ignore_eos": True}


def text(seed: int) -> list[int]:
    """One of many texts."""
    return random.Random(seed).choices(range(3, 200), k=200)


def write(model_path: Path, folder: Path, seed: int, begun: int) -> None:
    """Write beginnings of a text, over and over, until somebody ends it; says when it begins to."""
    lines = LineFolder(folder, _key(model_path, folder), 1 << 20)
    with localllm.load(model_path, backend="cpu", cache_disk=0) as model, model.line() as line:
        tokens = array(text(seed))
        line.feed(tokens.tolist())
        os.write(begun, b".")
        while True:
            for n in range(100, 200):
                fork = line._line.fork()
                fork.truncate(n)
                lines.write(tokens[:n], 1.0, 1 << 16, fork.save)
                fork.close()


def check(model_path: Path, folder: Path, seed: int, report: int) -> None:
    """Start from what is there: answers must be those of a model that never looks."""
    seen = {"wrong": 0, "hits": 0}
    with (
        localllm.load(model_path, backend="cpu", cache_disk=1) as model,
        localllm.load(model_path, backend="cpu", cache_ram=0, cache_disk=0) as fresh,
    ):
        for prompt in (text(seed)[: 80 + seed], text(seed), text(seed + 1)):
            found = model.generate(prompt, **_OPTIONS)
            seen["wrong"] += found.tokens != fresh.generate(prompt, **_OPTIONS).tokens
            seen["hits"] += found.usage.cache == "disk"
    os.write(report, json.dumps(seen).encode())


def _key(model_path: Path, folder: Path) -> bytes:
    """The key that the model's lines have, from a file that a model has written."""
    (file,) = (folder.parent / "key").glob("*/*.kv")
    return file.read_bytes()[8:40]


def child(work: Callable[[int], None]) -> tuple[int, int]:
    """A fork that does some work; its id, and where it reports to."""
    reads, writes = os.pipe()
    process = os.fork()
    if process:
        os.close(writes)
        return process, reads
    try:
        work(writes)
        os._exit(0)
    finally:
        os._exit(1)


def ended(process: int) -> int:
    """How a child ended: its exit code, or a signal as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main(model_path: Path, folder: Path, rounds: int) -> None:
    with localllm.load(model_path, backend="reference", cache_disk=0) as model:
        model.generate("imports what an answer needs", max_tokens=1)
    for name in ("localllm.backends.cpu.session", "llvmlite.binding"):
        importlib.import_module(name)
    saving.PAYS, saving._READ = 1e-9, 1e15
    folders.kv_folder = lambda: folder.parent / "key"
    process, report = child(lambda _: _answer(model_path))
    assert ended(process) == 0
    folders.kv_folder = lambda: folder
    seen = {"wrong": 0, "hits": 0, "errors": 0, "drafts": 0, "finished": 0}
    for n in range(rounds):
        writer, report = child(partial(write, model_path, folder, n))
        os.read(report, 1)
        time.sleep(random.uniform(0, 0.06))
        os.kill(writer, signal.SIGKILL)
        seen["finished"] += ended(writer) != -signal.SIGKILL
        seen["drafts"] += len(list(folder.glob("*/*.draft")))
        reader, report = child(partial(check, model_path, folder, n))
        with os.fdopen(report) as said:
            answer = said.read()
        seen["errors"] += ended(reader) != 0
        for name, count in json.loads(answer or "{}").items():
            seen[name] += count
    print(json.dumps(seen))


def _answer(model_path: Path) -> None:
    with localllm.load(model_path, backend="cpu") as model:
        model.generate(text(0), **_OPTIONS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
