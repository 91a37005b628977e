"""The router of a mixture of experts: softmax over all of them, the best few, their weights scaled to sum 1 (Mixtral's rule)."""

from __future__ import annotations

from collections.abc import Callable

from numba import float32

from localllm.backends.cpu.arguments import ROUTE
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.maths import vexp
from localllm.backends.cpu.kernels.parts import ld_part
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.vec import hmax, hsum, keep_if, ld_f, ld_f32, ld_i64, sp_f, st_f, st_f32, st_i64, vmax
from localllm.backends.cpu.records import SCRATCH, SCRATCH_BYTES

_X, _X_STRIDE, _EXPERTS, _USED, _IDS, _WEIGHTS, _ROWS = ROUTE.offsets
_LOWEST, _TAKEN = float32(float("-inf")), float32(-1.0)


@helper
def _softmax(x: int, n: int, out: int) -> None:
    """Probabilities of n logits, padded to whole vectors with zeros."""
    m = sp_f(_LOWEST)
    for i in range(0, n, 16):
        m = vmax(m, keep_if(ld_part(x + 4 * i, n - i), 0, n - i - 1, _LOWEST))
    top, total = sp_f(hmax(m)), sp_f(float32(0.0))
    for i in range(0, n, 16):
        p = vexp(keep_if(ld_part(x + 4 * i, n - i), 0, n - i - 1, _LOWEST) - top)
        total = total + p
        st_f(out + 4 * i, p)
    total = sp_f(hsum(total))
    for i in range(0, n, 16):
        st_f(out + 4 * i, ld_f(out + 4 * i) / total)


@helper
def _best(p: int, n: int) -> int:
    """The largest that is not taken, the lowest number on ties; always one of them, also among NaNs."""
    best = -1
    for i in range(n):
        v = ld_f32(p + 4 * i)
        if v != _TAKEN and (best < 0 or v > ld_f32(p + 4 * best)):
            best = i
    return best


@helper
def _choose(p: int, n: int, used: int, ids: int, weights: int) -> None:
    total = float32(0.0)
    for r in range(used):
        i = _best(p, n)
        st_i64(ids + 8 * r, i)
        st_f32(weights + 4 * r, ld_f32(p + 4 * i))
        total += ld_f32(p + 4 * i)
        st_f32(p + 4 * i, _TAKEN)
    for r in range(used):
        st_f32(weights + 4 * r, float32(ld_f32(weights + 4 * r) / total))


def route() -> Callable[..., None]:
    """Kernel (ROUTE): a piece of work is a row."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        rows, n, used = ld_i64(ld_i64(args + _ROWS)), ld_i64(args + _EXPERTS), ld_i64(args + _USED)
        scratch = ld_i64(state + 8 * SCRATCH) + thread * ld_i64(state + 8 * SCRATCH_BYTES)
        i = take(counter)
        while i < rows:
            _softmax(ld_i64(args + _X) + i * ld_i64(args + _X_STRIDE), n, scratch)
            _choose(scratch, n, used, ld_i64(args + _IDS) + 8 * i * used, ld_i64(args + _WEIGHTS) + 4 * i * used)
            i = take(counter)

    return run
