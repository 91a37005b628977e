"""Matrix products by llama.cpp's own library, for formats.py: a process of its own, whose interpreter has ``llama-cpp-python``.

It reads a JSON object a line and answers with one: ``{"load": file of rows, "type": number, "rows", "columns", "matrices", "threads"}``
makes the matrices, ``{"gemv": n}`` and ``{"gemm": n}`` multiply n of them by one or by 512 columns and answer with the seconds.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

COLUMNS = 512
_F32 = 0
_SLACK = 512 << 20


class _Parameters(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def _library(name: str) -> ctypes.CDLL:
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("llama_cpp can't be imported; install llama-cpp-python")
    for path in sorted(Path(spec.submodule_search_locations[0], "lib").glob(f"*{name}.*")):
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    sys.exit(f"llama_cpp has no library {name}")


class Peer:
    """Matrices in ggml's memory, and graphs of products with them."""

    def __init__(self) -> None:
        self.base, self.cpu = _library("ggml-base"), _library("ggml-cpu")
        pointer = ctypes.c_void_p
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "ggml_init": (pointer, [_Parameters]),
            "ggml_free": (None, [pointer]),
            "ggml_new_tensor_2d": (pointer, [pointer, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]),
            "ggml_get_data": (pointer, [pointer]),
            "ggml_mul_mat": (pointer, [pointer, pointer, pointer]),
            "ggml_new_graph": (pointer, [pointer]),
            "ggml_build_forward_expand": (None, [pointer, pointer]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.base, name)
            function.restype, function.argtypes = result, arguments
        self.cpu.ggml_graph_compute_with_ctx.argtypes = [pointer, pointer, ctypes.c_int]
        self.cpu.ggml_cpu_init()
        self.context: int | None = None
        self.graphs: dict[tuple[int, int], int] = {}

    def load(self, file: str, type: int, rows: int, columns: int, matrices: int, threads: int) -> None:
        """Copies of the rows in a file, repeated, as so many matrices."""
        if self.context:
            self.base.ggml_free(self.context)
        pool = Path(file).read_bytes()
        row = len(pool) // 1024
        data = (pool * -(-rows // 1024))[: rows * row]
        self.context = self.base.ggml_init(_Parameters(matrices * len(data) + _SLACK, None, False))
        self.matrices = [self.base.ggml_new_tensor_2d(self.context, type, columns, rows) for _ in range(matrices)]
        for tensor in self.matrices:
            ctypes.memmove(self.base.ggml_get_data(tensor), data, len(data))
        self.columns, self.threads = columns, threads
        self.graphs = {}

    def multiply(self, matrices: int, columns: int) -> float:
        """Seconds that products of the first matrices by so many columns take."""
        graph = self.graphs.get((matrices, columns)) or self._graph(matrices, columns)
        started = time.perf_counter()
        self.cpu.ggml_graph_compute_with_ctx(self.context, graph, self.threads)
        return time.perf_counter() - started

    def _graph(self, matrices: int, columns: int) -> int:
        x = self.base.ggml_new_tensor_2d(self.context, _F32, self.columns, columns)
        values = (ctypes.c_float * (self.columns * columns)).from_address(self.base.ggml_get_data(x))
        for i in range(self.columns * columns):
            values[i] = (i * 7919 % 2003 - 1001) / 1001
        graph: int = self.base.ggml_new_graph(self.context)
        for tensor in self.matrices[:matrices]:
            self.base.ggml_build_forward_expand(graph, self.base.ggml_mul_mat(self.context, tensor, x))
        self.graphs[matrices, columns] = graph
        self.cpu.ggml_graph_compute_with_ctx(self.context, graph, self.threads)
        return graph


def main() -> None:
    """Answers lines until they end."""
    peer = Peer()
    for line in sys.stdin:
        asked = json.loads(line)
        if "load" in asked:
            peer.load(asked.pop("load"), **asked)
            answer: dict[str, object] = {}
        else:
            kind, matrices = asked.popitem()
            answer = {"seconds": peer.multiply(matrices, COLUMNS if kind == "gemm" else 1)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
