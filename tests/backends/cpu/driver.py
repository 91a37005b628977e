"""Calls single kernels: buffers, records and the state that they read, built from NumPy arrays.

Whatever a kernel may not read holds NaN: rows beyond the count, cache that was never written, fresh scratch.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localllm.backends.cpu import arguments
from localllm.backends.cpu.kernel_cache import KernelId, kernels
from localllm.backends.cpu.kv_types import HeadLayout
from localllm.backends.cpu.records import (
    KEY_TILES,
    NQ,
    PAGES,
    PARTIALS,
    POSITIONS,
    QUERIES,
    QUERY_TILES,
    ROPES,
    ROWS,
    SCRATCH,
    SCRATCH_BYTES,
    STATE_WORDS,
    THREADS,
    TILE,
    Record,
)
from tests.backends.cpu.kv import Heads

Bytes = NDArray[np.uint8]
Alloc = Callable[[int], Bytes]
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


def aligned(nbytes: int) -> Bytes:
    """Memory that starts on a cache line, all bits set: NaN as float32 and as float16."""
    raw = np.full(nbytes + 64, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


_mapped: list[Any] = []


def guarded(nbytes: int, at_end: bool = True) -> Bytes:
    """Memory between two pages that can't be touched; it ends where the second begins, or begins where the first ends. Never given back."""
    page = mmap.PAGESIZE
    inner = -(-nbytes // page) * page
    area = mmap.mmap(-1, inner + 2 * page)
    _mapped.append(area)
    memory = np.frombuffer(area, np.uint8)
    memory[:] = 0xFF
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for start in (memory.ctypes.data, memory.ctypes.data + page + inner):
        assert protect(ctypes.c_void_p(start), ctypes.c_size_t(page), 0) == 0, ctypes.get_errno()
    first = page + inner - nbytes if at_end else page
    return memory[first : first + nbytes]


@dataclass
class Register:
    """A float32 register. ``all`` is (rows rounded up to 16, padded width); ``data`` is what counts of it."""

    all: NDArray[np.float32]
    data: NDArray[np.float32]

    @property
    def address(self) -> int:
        """Of row 0."""
        return int(self.all.ctypes.data)

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return int(self.all.strides[0])

    def words(self, name: str) -> dict[str, int]:
        """The two words of a record that name this register."""
        return {name: self.address, f"{name}_stride": self.stride}

    def check_padding(self) -> None:
        """Asserts that the padding of every row that counts is zero."""
        rows, width = self.data.shape
        assert not np.any(self.all[:rows, width:])


class Driver:
    """Makes buffers with ``alloc`` and calls kernels on ``threads`` threads at once."""

    def __init__(self, alloc: Alloc = aligned, threads: int = 1) -> None:
        self.alloc, self.threads = alloc, threads
        self._kept: list[Any] = []

    def array(self, values: Any, dtype: Any) -> NDArray[Any]:
        """A copy of an array in the driver's memory."""
        source = np.ascontiguousarray(values, dtype)
        copy: NDArray[Any] = self.alloc(source.nbytes).view(dtype).reshape(source.shape)
        copy[...] = source
        self._kept.append(copy)
        return copy

    def address(self, values: Any, dtype: Any) -> int:
        """Where such a copy lies."""
        return int(self.array(values, dtype).ctypes.data)

    def register(self, values: Any) -> Register:
        """A register of these rows; the rows up to the next multiple of 16 hold NaN."""
        x = np.asarray(values, np.float32)
        rows, width = x.shape
        shape = (-(-rows // 16) * 16, -(-width // 64) * 64)
        memory = self.alloc(4 * shape[0] * shape[1]).view(np.float32).reshape(shape)
        memory[:rows] = 0
        memory[:rows, :width] = x
        self._kept.append(memory)
        return Register(memory, memory[:rows, :width])

    def empty(self, rows: int, width: int) -> Register:
        """A register to be written: NaN, with the padding that it must have."""
        return self.register(np.full((rows, width), np.nan, np.float32))

    def weight(self, values: Any) -> int:
        """Address of a norm's weight."""
        x = np.zeros(-(-len(values) // 64) * 64, np.float32)
        x[: len(values)] = values
        return self.address(x, np.float32)

    def count(self, n: int) -> int:
        """Address of a number of rows."""
        return self.address([n], np.int64)

    def state(self, words: Mapping[int, int] | None = None, scratch: int = 0) -> NDArray[np.int64]:
        """State words by index, with ``scratch`` bytes for every thread."""
        each = -(-scratch // 64) * 64
        memory = self.alloc(each * self.threads) if each else np.zeros(0, np.uint8)
        self._kept.append(memory)
        state = np.full(STATE_WORDS, -1, np.int64)
        filled = {SCRATCH: memory.ctypes.data, SCRATCH_BYTES: each, THREADS: self.threads, **(words or {})}
        for index, value in filled.items():
            state[index] = value
        copy: NDArray[np.int64] = self.array(state, np.int64)
        return copy

    def run(self, kernel: KernelId, record: Record, words: Mapping[str, int], state: NDArray[np.int64] | None = None) -> None:
        """Calls a kernel with the words of its record, and waits until its work is done."""
        state = self.state() if state is None else state
        self.call(kernels().addresses([kernel])[kernel], self.address(record.fill(**words), np.int64), int(state.ctypes.data))

    def call(self, entry: int, args: int, state: int = 0) -> None:
        """Calls machine code on every thread, with a counter of zero."""
        counter = np.zeros(8, np.int64)
        function = _ENTRY(entry)
        calls = [(args, state, int(counter.ctypes.data), i) for i in range(self.threads)]
        workers = [threading.Thread(target=function, args=c) for c in calls[1:]]
        for worker in workers:
            worker.start()
        function(*calls[0])
        for worker in workers:
            worker.join()


class Cache:
    """The pages of one line: NaN until written. Heads of ``layers`` layers; the page table is not in rising order of addresses."""

    def __init__(self, driver: Driver, length: int, kv_heads: int, head_dim: int, layers: int = 1, k: str = "f16", v: str = "f16") -> None:
        self.kv_heads, self.layout = kv_heads, HeadLayout(k, v, head_dim)
        self.layer_bytes = kv_heads * self.layout.bytes
        self.pages = [driver.alloc(layers * self.layer_bytes) for _ in range(-(-length // TILE))]
        driver._kept.append(self.pages)
        self.table = driver.address([[-1, -1, int(page.ctypes.data)] for page in self.pages], np.int64)

    def place(self, layer: int) -> dict[str, int]:
        """Words of a record: where a layer's keys and values lie."""
        return {"table_step": 24, "table_offset": 16, "layer_offset": layer * self.layer_bytes, **self.layout.words()}

    def put(self, first: int, k: Any, v: Any, layer: int = 0) -> None:
        """Writes keys and values (n, kv_heads, head_dim) from position ``first`` on."""
        for i in range(len(k)):
            self._heads(layer, first + i).put((first + i) % TILE, k[i], v[i])

    def get(self, position: int, layer: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
        """Keys and values of a position, (kv_heads, padded width) float32."""
        return self._heads(layer, position).get(position % TILE)

    def _heads(self, layer: int, position: int) -> Heads:
        page = self.pages[position // TILE]
        return Heads(page[layer * self.layer_bytes : (layer + 1) * self.layer_bytes], self.kv_heads, self.layout)


def line_words(driver: Driver, cache: Cache, positions: Sequence[int]) -> dict[int, int]:
    """State words of rows of one line."""
    n = len(positions)
    return {ROWS: n, POSITIONS: driver.address(positions, np.int64), PAGES: driver.address([cache.table] * n, np.int64)}


def query_tiles(driver: Driver, runs: Sequence[tuple[int, int, int, Cache]]) -> dict[int, int]:
    """State words for runs (first row, rows, position of the first, cache of the line), cut into tiles of at most QUERIES."""
    tiles = [(first + i, min(QUERIES, n - i), pos + i, cache.table) for first, n, pos, cache in runs for i in range(0, n, QUERIES)]
    return {QUERY_TILES: driver.address(tiles, np.int64), NQ: len(tiles)}


def partials(driver: Driver, rows: int, heads: int, wide: int, tiles: int) -> dict[int, int]:
    """State words of scratch for attention over few rows."""
    memory = driver.alloc(rows * heads * tiles * arguments.partial_bytes(wide))
    driver._kept.append(memory)
    return {PARTIALS: int(memory.ctypes.data), KEY_TILES: tiles}


def rope_words(driver: Driver, tables: Sequence[Any]) -> dict[int, int]:
    """State words of up to four tables (positions, dim)."""
    return {ROPES + i: driver.address(table, np.float32) for i, table in enumerate(tables)}


def call_words(entry: int, *words: int) -> None:
    """Calls machine code with up to four words of its own choice."""
    _ENTRY(entry)(*words, *[0] * (4 - len(words)))


_jitted: list[Any] = []


def jit(function: Callable[..., None], name: str) -> int:
    """The address of a kernel that is not in the package, compiled for the present target."""
    import llvmlite.binding as llvm

    from localllm.backends.cpu.compiler import compile_kernel

    machine = kernels().machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(compile_kernel(function, name, kernels().machine())))
    engine.finalize_object()
    _jitted.append(engine)
    return int(engine.get_function_address(name))
