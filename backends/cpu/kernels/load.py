"""The loop of a thread that loads weights: it reads and packs without coming back to Python, and so never waits for the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.arguments_load import LOAD, PIECE
from localllm.backends.cpu.kernels.executor import call_kernel
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import I64
from localllm.backends.cpu.kernels.sync import atomic_add, atomic_store, take
from localllm.backends.cpu.kernels.vec import ld_i64, st_i64

_READ, _PIECES, _COUNT, _BUFFERS, _BUFFER_BYTES, _LOADED = LOAD.offsets
_PIECE_BYTES = 8 * len(PIECE.names)
_FILE, _OFFSET, _BYTES, _PACK, _DONE, _SRC = PIECE.offsets[:6]


@intrinsic
def _call_read(typing: Any, function: Any, file: Any, to: Any, count: Any, offset: Any) -> Any:
    def generate(context: Any, b: Any, sig: Any, values: Any) -> Any:
        return b.call(b.inttoptr(values[0], ir.FunctionType(I64, [I64] * 4).as_pointer()), values[1:])

    return types.int64(*[types.int64] * 5), generate


@helper
def _filled(read: int, piece: int, buffer: int) -> Any:
    """Whether the bytes of a piece are in the buffer now."""
    done, count = 0, ld_i64(piece + _BYTES)
    while done < count:
        n = _call_read(read, ld_i64(piece + _FILE), buffer + done, count - done, ld_i64(piece + _OFFSET) + done)
        if n <= 0:
            return False
        done += n
    return True


def load() -> Callable[..., None]:
    """Kernel: takes pieces until there is none, or one can't be read: then nobody takes another, and that one stays undone."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        buffer = ld_i64(args + _BUFFERS) + thread * ld_i64(args + _BUFFER_BYTES)
        i = take(counter)
        while i < ld_i64(args + _COUNT):
            piece = ld_i64(args + _PIECES) + i * _PIECE_BYTES
            if ld_i64(piece + _DONE) == 0:
                if not _filled(ld_i64(args + _READ), piece, buffer):
                    atomic_store(counter, ld_i64(args + _COUNT))
                    return
                st_i64(piece + _SRC, buffer)
                call_kernel(ld_i64(piece + _PACK), piece + _SRC, 0, 0, 0)
                st_i64(piece + _DONE, 1)
                atomic_add(args + _LOADED, ld_i64(piece + _BYTES))
            i = take(counter)

    return run
