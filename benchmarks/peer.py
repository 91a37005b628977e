"""What ``localllm bench`` does, done by llama.cpp: run by ``compare.py`` with a peer's Python, which has ``llama_cpp`` or ``xllamacpp``.

Needs nothing but the standard library and the peer. Prints one JSON object with the tests' speeds, versions and llama.cpp's own account of
how it was built. The prompt goes in batches of 512, logits are asked for its last token only, tokens come from a fixed generator, nothing
is sampled (with ``llama_cpp``), and the clock stops when the logits can be read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

BATCH = 512
WARM = 4
"""Tokens that are decoded before the clock starts, as in ``localllm bench``."""


class LlamaCpp:
    """llama-cpp-python's low-level interface: llama.h through ctypes."""

    package = "llama-cpp-python"

    def __init__(self, arguments: argparse.Namespace, context: int) -> None:
        self._api = api = import_module("llama_cpp")
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(arguments.model.encode(), api.llama_model_default_params())
        settings = api.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = context, BATCH, BATCH
        settings.n_threads = settings.n_threads_batch = arguments.threads
        settings.flash_attn_type = 1 if arguments.flash else 0
        settings.swa_full = False
        self._context = api.llama_init_from_model(self._model, settings) if self._model else None
        if not self._context:
            sys.exit(f"llama.cpp can't load {arguments.model}")
        self._memory = api.llama_get_memory(self._context)
        self._vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._batch = api.llama_batch_init(BATCH, 0, 1)
        self._at = 0

    def system(self) -> str:
        """The instruction sets and options that llama.cpp was built with."""
        return str(self._api.llama_print_system_info().decode()).strip()

    def prompt(self, depth: int, count: int) -> float:
        """Seconds of a prompt behind ``depth`` tokens."""
        self._forget(depth)
        started = time.perf_counter()
        self._feed(count)
        return time.perf_counter() - started

    def decode(self, depth: int, count: int) -> float:
        """Seconds of tokens one by one behind ``depth`` tokens."""
        self._forget(depth)
        for _ in range(WARM):
            self._feed(1)
        started = time.perf_counter()
        for _ in range(count):
            self._feed(1)
        return time.perf_counter() - started

    def _forget(self, depth: int) -> None:
        self._api.llama_memory_clear(self._memory, False)
        self._at = 0
        self._feed(depth)

    def _feed(self, count: int) -> None:
        """More tokens, in batches; waits for the logits of the last one."""
        for first in range(0, count, BATCH):
            rows = min(BATCH, count - first)
            self._fill(rows, first + rows == count)
            if self._api.llama_decode(self._context, self._batch) != 0:
                sys.exit("llama_decode failed")
            self._at += rows
        if count:
            self._api.llama_get_logits(self._context)[0]

    def _fill(self, rows: int, wanted: bool) -> None:
        batch = self._batch
        batch.n_tokens = rows
        for i in range(rows):
            batch.token[i] = random.randrange(self._vocab)
            batch.pos[i] = self._at + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = wanted and i == rows - 1


class XLlamaCpp:
    """xllamacpp's server, asked in the process. It has no lower interface: its clock is its own, and choosing tokens is in its time."""

    package = "xllamacpp"

    def __init__(self, arguments: argparse.Namespace, context: int) -> None:
        self._api = xllamacpp = import_module("xllamacpp")
        settings = xllamacpp.CommonParams()
        settings.model.path = arguments.model
        settings.n_ctx, settings.n_batch, settings.n_ubatch = context, BATCH, BATCH
        settings.n_parallel = 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = arguments.threads
        flash = xllamacpp.llama_flash_attn_type
        settings.flash_attn_type = flash.LLAMA_FLASH_ATTN_TYPE_ENABLED if arguments.flash else flash.LLAMA_FLASH_ATTN_TYPE_DISABLED
        settings.cache_prompt = False
        settings.fit_params, settings.verbosity = False, 0
        self._server = xllamacpp.Server(settings)

    def system(self) -> str:
        """The instruction sets and options that llama.cpp was built with."""
        return str(self._api.get_system_info()).strip()

    def prompt(self, depth: int, count: int) -> float:
        """Seconds of a prompt; its server can't time one behind others."""
        if depth:
            sys.exit("xllamacpp can't time a prompt behind other tokens")
        return float(self._ask(count, 1)["prompt_ms"]) / 1e3

    def decode(self, depth: int, count: int) -> float:
        """Seconds of tokens one by one behind ``depth`` tokens; the first comes with the prompt."""
        found = self._ask(max(depth, WARM), count + 1)
        return float(found["predicted_ms"]) / 1e3

    def _ask(self, prompt: int, count: int) -> dict[str, Any]:
        tokens = [random.randrange(1000) for _ in range(prompt)]
        request = {"prompt": tokens, "n_predict": count, "temperature": 0, "samplers": [], "ignore_eos": True, "cache_prompt": False}
        answer = self._server.handle_completions(request)
        if isinstance(answer, str | bytes):
            answer = json.loads(answer)
        found: dict[str, Any] = answer["timings"]
        if found["prompt_n"] != prompt or found["predicted_n"] != count:
            sys.exit(f"xllamacpp did {found['prompt_n']} + {found['predicted_n']} tokens, not {prompt} + {count}")
        return found


def main() -> None:
    """Time what the options say, once for each repeat in turn, after one of each that does not count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    for letter, name, default in (("p", "prompt", 512), ("n", "decode", 64), ("d", "depth", 0), ("t", "threads", 1), ("r", "repeats", 5)):
        parser.add_argument(f"-{letter}", f"--{name}", type=int, default=default)
    parser.add_argument("--flash", action="store_true", help="flash attention")
    arguments = parser.parse_args()
    random.seed(0)
    kind: type[LlamaCpp] | type[XLlamaCpp] = LlamaCpp if find_spec("llama_cpp") else XLlamaCpp
    with quiet():
        peer = kind(arguments, arguments.depth + arguments.prompt + arguments.decode + 2 * WARM)
        results = measure(peer, arguments)
    print(json.dumps({"package": kind.package, "version": version(kind.package), "system": peer.system(), "results": results}), flush=True)
    os._exit(0)  # nothing is left to do, and tearing llama.cpp down takes time


def measure(peer: LlamaCpp | XLlamaCpp, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """The tests' speeds, in the form of ``localllm bench --json``."""
    behind = f"@d{arguments.depth}" if arguments.depth else ""
    both = ("pp", peer.prompt, arguments.prompt), ("tg", peer.decode, arguments.decode)
    tests = [(f"{kind}{count}{behind}", run, count) for kind, run, count in both if count]
    times: dict[str, list[float]] = {name: [] for name, _, _ in tests}
    for _, run, count in tests:
        run(0, min(count, BATCH))
    for _ in range(arguments.repeats):
        for name, run, count in tests:
            times[name].append(run(arguments.depth, count))
    return [figure(name, count, times[name]) for name, _, count in tests]


def figure(name: str, count: int, seconds: list[float]) -> dict[str, object]:
    """Tokens a second: median and extremes."""
    return {"test": name, "tps": count / statistics.median(seconds), "tps_min": count / max(seconds), "tps_max": count / min(seconds)}


class quiet:  # noqa: N801
    """Sends what llama.cpp writes about itself to nowhere; the output of this script is one line."""

    def __enter__(self) -> None:
        self._kept = [os.dup(1), os.dup(2)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)

    def __exit__(self, *_: object) -> None:
        for descriptor, kept in zip((1, 2), self._kept, strict=True):
            os.dup2(kept, descriptor)


if __name__ == "__main__":
    main()
