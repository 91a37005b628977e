"""How fast matrices of every storage format are multiplied: ``python benchmarks/formats.py [--peer PYTHON] [--write]``.

GEMV is one row of activations times so many matrices that no cache keeps them, in 10^9 bytes of the file a second and as a share of a read
sum; GEMM is 512 rows, in 10^9 multiply-adds a second and as a share of the peak of byte products. Both ceilings are measured in every round
between the formats. ``--peer``: an interpreter that has ``llama-cpp-python``; its ggml multiplies the same blocks in the same rounds.
``--write`` puts the table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localllm import quant
from localllm.backends.base import Chunk, Options, Readable, Want
from localllm.backends.cpu import CpuBackend
from localllm.backends.cpu.layout import FLOATS, LAYOUTS
from localllm.backends.cpu.machine import Meter
from localllm.backends.cpu.session import CpuSession
from localllm.backends.cpu.threads import default_threads
from localllm.model.program import Embed, Last, Linear, Op, Program

ROWS, COLUMNS, BATCH = 8960, 1536, 512
POOL = 1024
"""Different rows; a matrix repeats them."""
MULTIPLIED = 2
"""Matrices of a GEMM."""
BEGIN, END = "<!-- formats -->", "<!-- /formats -->"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as a source lists it."""

    name: str
    shape: tuple[int, ...]
    type: str
    row_bytes: int
    nbytes: int


class File:
    """Bytes in a file that is gone when nobody refers to it."""

    def __init__(self, data: bytes) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object
        self._file.write(data)
        self._file.flush()

    def fileno(self) -> int:
        """The system's number of the file."""
        return self._file.fileno()

    def read_into(self, offset: int, out: memoryview, /) -> None:
        """Fill ``out`` from ``offset`` on."""
        out[:] = os.pread(self.fileno(), len(out), offset)


class Source:
    """Matrices of one format whose rows are those of a pool, and two small ones of floats for the rest of a Program."""

    def __init__(self, kind: str, pool: NDArray[np.uint8], names: Sequence[str]) -> None:
        shapes = dict.fromkeys(names, (ROWS, COLUMNS, kind, pool.shape[1]))
        shapes |= dict.fromkeys(("embed", "head"), (64, COLUMNS, "F32", 4 * COLUMNS))
        self.tensors: Mapping[str, Tensor] = {name: Tensor(name, (n, k), t, b, n * b) for name, (n, k, t, b) in shapes.items()}
        values = np.random.default_rng(1).standard_normal((64, COLUMNS)).astype(np.float32)
        pools = {"w": np.resize(pool, (ROWS, pool.shape[1])), "other": values.view(np.uint8)}
        self._file = File(b"".join(p.tobytes() for p in pools.values()))
        self._offsets = dict.fromkeys(names, 0) | dict.fromkeys(("embed", "head"), pools["w"].nbytes)

    def read_into(self, name: str, first_row: int, out: NDArray[np.uint8]) -> None:
        """Rows of a tensor."""
        self._file.read_into(self._offsets[name] + first_row * out.shape[1], out.data.cast("B"))

    def place(self, name: str) -> tuple[Readable, int]:
        """All matrices of the format are the same bytes."""
        return self._file, self._offsets[name]


def program(names: Sequence[str]) -> Program:
    """The embedding of some tokens times every matrix, each into a register of its own, and logits of one row as all Programs have them."""
    products = [Linear("x", f"y {name}", name) for name in names]
    ops: list[Op] = [Embed("x", "embed"), *products, Last("x", "last"), Linear("last", "logits", "head")]
    widths = {"x": COLUMNS, "last": COLUMNS, "logits": 64, **{op.out: ROWS for op in products}}
    shapes = {"embed": (64, COLUMNS), "head": (64, COLUMNS), **dict.fromkeys(names, (ROWS, COLUMNS))}
    return Program(tuple(ops), widths, shapes, "logits", 64, 1 << 20)


def rows_of(kind: str) -> NDArray[np.uint8]:
    """A pool of rows: random blocks whose scales are those of a model."""
    rng = np.random.default_rng(0)
    if kind in FLOATS:
        return quant.quantize(rng.standard_normal((POOL, COLUMNS)).astype(np.float32), kind)
    found = quant.format(kind)
    raw = rng.integers(0, 256, (POOL, COLUMNS // found.info.block_size * found.info.block_bytes), dtype=np.uint8)
    blocks = raw.view(found.block)
    for name in found.block.names or ():
        if found.block[name] == np.float16:
            blocks[name] = rng.uniform(0.01, 0.02, blocks.shape)
    if kind == "IQ1_M":  # d lies in the upper bits of the scales
        blocks["scales"] = blocks["scales"] & 0xFFF | np.array([0x1000, 0x1000, 0x1000, 0x2000], np.uint16)
    if kind == "MXFP4":
        blocks["e"] = rng.integers(118, 123, blocks.shape)
    if kind == "NVFP4":
        blocks["d"] = rng.integers(8, 64, blocks["d"].shape)
    return raw


@contextmanager
def sessions(kind: str, pool: NDArray[np.uint8], matrices: int) -> Iterator[tuple[CpuSession, CpuSession]]:
    """One for a row at a time over all matrices, one for many rows over the first of them."""
    names = [f"w{i}" for i in range(matrices)]
    backend, options, many = CpuBackend(), Options(batch=1), Options(batch=BATCH)
    weights = backend.upload(program(names), Source(kind, pool, names), options)
    opened = backend.compile(program(names), weights, options), backend.compile(program(names[:MULTIPLIED]), weights, many)
    try:
        yield opened
    finally:
        for session in opened:
            session.close()


def seconds(session: CpuSession, rows: int, times: int = 1) -> float:
    """The median time of a pass of so many rows."""
    taken = []
    for _ in range(times):
        line = session.new_line()
        started = time.perf_counter()
        session.forward([Chunk(line, [i % 64 for i in range(rows)], Want([rows - 1]))])
        taken.append(time.perf_counter() - started)
        line.close()
    return statistics.median(taken)


class Peer:
    """llama.cpp's library in another process (ggml.py)."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, str(Path(__file__).parent / "ggml.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def load(self, kind: str, pool: NDArray[np.uint8], matrices: int) -> None:
        """The same matrices there."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows")
            pool.tofile(file)
            shape = {"rows": ROWS, "columns": COLUMNS, "matrices": matrices, "threads": default_threads()}
            self._ask({"load": str(file), "type": quant.lookup(kind).id, **shape})

    def seconds(self, what: str, matrices: int, times: int = 1) -> float:
        """The median time of "gemv" or "gemm"."""
        return statistics.median(self._ask({what: matrices})["seconds"] for _ in range(times))

    def _ask(self, asked: Mapping[str, object]) -> dict[str, float]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the peer has ended; its message is above")
        answer: dict[str, float] = json.loads(line)
        return answer


@dataclass(frozen=True, slots=True)
class Result:
    """Medians over the rounds; shares of the ceilings of the same round. ``peer_*``: how many times as fast as llama.cpp we are."""

    kind: str
    gmacs: float
    peak: float
    gbps: float
    read: float
    peer_gemm: float | None
    peer_gemv: float | None


def measure(kind: str, meter: Meter, rounds: int, megabytes: int, peer: Peer | None) -> Result:
    """A format: in every round the ceilings, one row, many rows, and the peer's."""
    pool = rows_of(kind)
    matrices = max(MULTIPLIED, -(-megabytes * 10**6 // (ROWS * pool.shape[1])))
    nbytes, macs = matrices * ROWS * pool.shape[1], MULTIPLIED * ROWS * COLUMNS * BATCH
    if peer:
        peer.load(kind, pool, matrices)
    found: list[list[float]] = []
    with sessions(kind, pool, matrices) as (one, many):
        for i in range(rounds + 1):
            ceilings = meter.measure()
            gemv, gemm = seconds(one, 1, 3), seconds(many, BATCH)
            theirs = (peer.seconds("gemv", matrices, 3) / gemv, peer.seconds("gemm", MULTIPLIED) / gemm) if peer else (0.0, 0.0)
            gbps, gmacs = nbytes / gemv / 1e9, macs / gemm / 1e9
            if i:  # the first one warms up
                found.append([gmacs, gmacs / ceilings.int8_gmacs, gbps, gbps / ceilings.read_gbps, theirs[1], theirs[0]])
    gmacs, peak, gbps, read, gemm, gemv = (statistics.median(column) for column in zip(*found, strict=True))
    return Result(kind, gmacs, peak, gbps, read, gemm or None, gemv or None)


def table(results: Sequence[Result], ceilings: str) -> str:
    """Markdown."""
    heads = (
        "format",
        "bits in the file",
        "in memory",
        "GEMM, GMAC/s",
        "of the peak",
        "GEMV, GB/s",
        "of the read sum",
        "GEMM, GEMV to llama.cpp",
    )
    lines = [ceilings, "", f"| {' | '.join(heads)} |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for r in results:
        info = quant.lookup(r.kind)
        bits = 8 * info.block_bytes / info.block_size
        packed = bits if r.kind in FLOATS else LAYOUTS[r.kind].packed_bytes(64, 256 * 6) * 8 / (64 * 256 * 6)
        peer = f"{r.peer_gemm:.1f}×, {r.peer_gemv:.1f}×" if r.peer_gemm and r.peer_gemv else "–"
        lines.append(f"| {r.kind} | {bits:.2f} | {packed:.2f} | {r.gmacs:.0f} | {r.peak:.0%} | {r.gbps:.1f} | {r.read:.0%} | {peer} |")
    return "\n".join(lines)


def write(text: str) -> None:
    """Puts the table between its markers in docs/performance.md."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="FORMAT", help="formats, such as Q3_K; all of them if none is given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=64, help="of the file, that a GEMV reads")
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with llama-cpp-python, to compare with")
    parser.add_argument("--peer-formats", default="all", choices=("all", "grids"), help="compare all formats, or IQ1 to IQ3 only")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    asked = parser.parse_args()
    peer, meter = Peer(asked.peer) if asked.peer else None, Meter(default_threads())
    results = []
    for kind in asked.kinds or quant.NAMES:
        compared = peer if asked.peer_formats == "all" or kind.startswith(("IQ1", "IQ2", "IQ3")) else None
        results.append(measure(kind, meter, asked.rounds, asked.megabytes, compared))
        print(results[-1], file=sys.stderr)
    peak, read = (statistics.median(values) for values in ([r.gmacs / r.peak for r in results], [r.gbps / r.read for r in results]))
    ceilings = f"{processor()}, {default_threads()} threads, {date.today()}: peak {peak:.0f} GMAC/s of bytes, read sum {read:.1f} GB/s."
    text = table(results, ceilings)
    print(text)
    if asked.write:
        write(text)


if __name__ == "__main__":
    main()
