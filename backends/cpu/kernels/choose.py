"""The likeliest tokens of a row, so that Python need not look at a whole vocabulary between two tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from localllm.backends.cpu.arguments import LIKELIEST
from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import FLOATS
from localllm.backends.cpu.kernels.sync import take
from localllm.backends.cpu.kernels.vec import ld_f, ld_f32, ld_i64, sp_f, st_f32, st_i64
from localllm.backends.cpu.records import ASKED, WANTED

_X, _X_STRIDE, _N, _MOST, _LOGITS, _IDS = LIKELIEST.offsets


@intrinsic
def _not_below(typing: Any, a: Any, b_: Any, c: Any, d: Any, floor: Any) -> Any:
    """Whether any lane of four vectors is above the floor, or no number."""

    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        a, b_, c, d = (b.fcmp_unordered(">", x, args[4]) for x in args[:4])
        mask = b.bitcast(b.or_(b.or_(a, b_), b.or_(c, d)), ir.IntType(16))
        return b.icmp_unsigned("!=", mask, ir.Constant(mask.type, 0))

    return types.boolean(*[FLOATS] * 5), generate


@intrinsic
def _is_nan(typing: Any, x: Any) -> Any:
    return types.boolean(types.float32), lambda context, b, sig, args: b.fcmp_unordered("uno", args[0], args[0])


@helper
def _insert(logit: float, token: int, count: int, logits: int, ids: int) -> None:
    """Into a list of ``count``, largest first, behind its equals; there is room for one more. What is no number comes first of all."""
    at = count
    while at > 0 and (logit > ld_f32(logits + 4 * (at - 1)) or _is_nan(logit)):
        st_f32(logits + 4 * at, ld_f32(logits + 4 * (at - 1)))
        st_i64(ids + 8 * at, ld_i64(ids + 8 * (at - 1)))
        at -= 1
    st_f32(logits + 4 * at, logit)
    st_i64(ids + 8 * at, token)


@helper
def _offer(x: int, first: int, last: int, k: int, logits: int, ids: int) -> None:
    """Tokens ``first`` to ``last``, in order, to a list that has k already; its last one makes room."""
    for token in range(first, last):
        logit = ld_f32(x + 4 * token)
        if logit > ld_f32(logits + 4 * (k - 1)) or _is_nan(logit):
            _insert(logit, token, k - 1, logits, ids)


@helper
def _likeliest(x: int, n: int, k: int, logits: int, ids: int) -> None:
    for token in range(k):
        _insert(ld_f32(x + 4 * token), token, token, logits, ids)
    token = k
    while token + 64 <= n:
        at, floor = x + 4 * token, sp_f(ld_f32(logits + 4 * (k - 1)))
        if _not_below(ld_f(at), ld_f(at + 64), ld_f(at + 128), ld_f(at + 192), floor):
            _offer(x, token, token + 64, k, logits, ids)
        token += 64
    _offer(x, token, n, k, logits, ids)


def likeliest() -> Callable[..., None]:
    """Kernel (LIKELIEST): a piece of work is a row. The order is that of a stable sort: the lowest token first on ties."""

    def run(args: int, state: int, counter: int, thread: int) -> None:
        k, most = ld_i64(state + 8 * ASKED), ld_i64(args + _MOST)
        rows = ld_i64(state + 8 * WANTED) if k > 0 else 0
        i = take(counter)
        while i < rows:
            x = ld_i64(args + _X) + i * ld_i64(args + _X_STRIDE)
            _likeliest(x, ld_i64(args + _N), k, ld_i64(args + _LOGITS) + 4 * i * most, ld_i64(args + _IDS) + 8 * i * most)
            i = take(counter)

    return run
