"""What the machine can do at most: the speed of reading memory, and of dot products of bytes from registers and the nearest cache."""

from __future__ import annotations

from collections.abc import Callable

from localllm.backends.cpu.arguments_matmul import PEAK
from localllm.backends.cpu.kernels.codes import dotter
from localllm.backends.cpu.kernels.ir import AHEAD, INTS
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.tile import prefetcher, tile_store, zeros
from localllm.backends.cpu.kernels.vec import ld_i, ld_i64, st_i
from localllm.backends.cpu.layout import FEW
from localllm.backends.cpu.records import SCRATCH, SCRATCH_BYTES

_MEMORY, _PIECE, _PIECES, _ROUNDS = PEAK.offsets


def read() -> Callable[..., None]:
    """Kernel: sums all words of memory; a piece of work is ``piece`` bytes."""
    fetch, ahead = prefetcher(4), AHEAD

    def run(args: int, state: int, counter: int, thread: int) -> None:
        piece = ld_i64(args + _PIECE)
        i = take(counter)
        while i < ld_i64(args + _PIECES):
            p = ld_i64(args + _MEMORY) + i * piece
            a = ld_i(p)
            b = a
            c = a
            d = a
            for _ in range(piece // 256):
                if ahead:
                    fetch(p + ahead)
                a = a + ld_i(p)
                b = b + ld_i(p + 64)
                c = c + ld_i(p + 128)
                d = d + ld_i(p + 192)
                p += 256
            st_i(ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES), (a + b) + (c + d))
            i = take(counter)

    return run


def dots() -> Callable[..., None]:
    """Kernel: ``rounds`` times 16 rows x 32 values x FEW columns, as the matrix kernels do it, but without scales."""
    dot, zero = dotter("byte", FEW, False, False), zeros(INTS, FEW)

    def run(args: int, state: int, counter: int, thread: int) -> None:
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        i = take(counter)
        while i < ld_i64(args + _PIECES):
            acc = zero()
            for r in range(ld_i64(args + _ROUNDS)):
                acc = dot(acc, scratch + 64 * (r & 7), scratch + 1024)  # never the same place: nothing may be left to do before the loop
            tile_store(scratch + 2048, 64, acc)
            i = take(counter)

    return run
