"""Gated linear units: act(gate) * up."""

from __future__ import annotations

from collections.abc import Callable

from localllm.backends.cpu.arguments import GLU
from localllm.backends.cpu.kernels.maths import gelu, silu
from localllm.backends.cpu.kernels.norm import SEGMENT
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.vec import ld_f, ld_i64, st_f

_GATE, _GATE_STRIDE, _UP, _UP_STRIDE, _OUT, _OUT_STRIDE, _N, _ROWS = GLU.offsets
ACTIVATIONS = {"silu": silu, "gelu": gelu}


def glu(act: str) -> Callable[..., None]:
    """Kernel (GLU): a piece of work is a segment of a row. Padding of zeros stays zero."""
    activate = ACTIVATIONS[act]

    def run(args: int, state: int, counter: int, thread: int) -> None:
        n = (ld_i64(args + _N) + 63) // 64 * 64
        segments = (n + SEGMENT - 1) // SEGMENT
        pieces = segments * ld_i64(ld_i64(args + _ROWS))
        i = take(counter)
        while i < pieces:
            row, first = i // segments, i % segments * SEGMENT
            gate = ld_i64(args + _GATE) + row * ld_i64(args + _GATE_STRIDE)
            up = ld_i64(args + _UP) + row * ld_i64(args + _UP_STRIDE)
            out = ld_i64(args + _OUT) + row * ld_i64(args + _OUT_STRIDE)
            for k in range(4 * first, 4 * min(first + SEGMENT, n), 64):
                st_f(out + k, activate(ld_f(gate + k)) * ld_f(up + k))
            i = take(counter)

    return run
