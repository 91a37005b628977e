"""exp and the activations, on 16 floats, and a square root. Coefficients: the Cephes library's ``expf``; those of ``decay`` are
a minimax fit of 2^r."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import float32, int32, types
from numba.core.extending import intrinsic

from localllm.backends.cpu.kernels.helper import helper
from localllm.backends.cpu.kernels.ir import FLOATS, INTS, call
from localllm.backends.cpu.kernels.parts import where_less
from localllm.backends.cpu.kernels.vec import bits_f, fma, shl, sp_f, sp_i, unary, vmax, vmin

_bits = unary(FLOATS, INTS, lambda b, x: b.bitcast(x, INTS.ll))
_ROUND = float32(1.5 * 2**23)  # added to a small float, leaves it rounded to an integer in the low bits
_ROUND_BIASED = float32(1.5 * 2**23 + 127)
_SMALLEST, _NOTHING = float32(-87.3), float32(-88.0)


@intrinsic
def root(typing: Any, x: Any) -> Any:
    """Square root of a float64, by the instruction: the C library's needs a symbol and sets errno."""
    return types.float64(types.float64), lambda context, b, sig, args: call(b, "llvm.sqrt.f64", ir.DoubleType(), args)


@helper
def vexp(x: Any) -> Any:
    """exp, relative error < 2e-7; 1 at 0; 0 below -87.3; infinity above 88.4; NaN stays NaN."""
    y = vmin(sp_f(float32(89.0)), x)
    t = fma(y, sp_f(float32(1.44269504088896341)), sp_f(_ROUND))
    n = t - sp_f(_ROUND)
    r = fma(n, sp_f(float32(-0.693359375)), y)
    r = fma(n, sp_f(float32(2.12194440e-4)), r)
    p = sp_f(float32(1.9875691500e-4))
    p = fma(p, r, sp_f(float32(1.3981999507e-3)))
    p = fma(p, r, sp_f(float32(8.3334519073e-3)))
    p = fma(p, r, sp_f(float32(4.1665795894e-2)))
    p = fma(p, r, sp_f(float32(1.6666665459e-1)))
    p = fma(p, r, sp_f(float32(5.0000001201e-1)))
    p = fma(p, r * r, r + sp_f(float32(1.0)))
    power = bits_f(shl(_bits(t), 23) + sp_i(int32(127 << 23)))
    return where_less(x, sp_f(_SMALLEST), sp_f(float32(0.0)), p * power)


@helper
def decay(x: Any) -> Any:
    """exp of what is not above 0: absolute error < 2e-7; 1 at 0; 0 below -87.7; NaN stays NaN. Two thirds of the work of ``vexp``.

    2^n is made of the low bits of the rounded exponent, where the bias is added already: it is 0 at the smallest n.
    """
    y = vmax(sp_f(_NOTHING), x)
    t = fma(y, sp_f(float32(1.44269504088896341)), sp_f(_ROUND_BIASED))
    r = fma(y, sp_f(float32(1.44269504088896341)), sp_f(_ROUND_BIASED) - t)
    p = fma(sp_f(float32(1.3264726e-3)), r, sp_f(float32(9.671513e-3)))
    p = fma(p, r, sp_f(float32(5.5507336e-2)))
    p = fma(p, r, sp_f(float32(2.4022242e-1)))
    p = fma(p, r, sp_f(float32(6.93147e-1)))
    p = fma(p, r, sp_f(float32(1.0)))
    return p * bits_f(shl(_bits(t), 23))


@helper
def silu(x: Any) -> Any:
    """x / (1 + exp(-x))."""
    return x / (sp_f(float32(1.0)) + vexp(sp_f(float32(0.0)) - x))


@helper
def gelu(x: Any) -> Any:
    """x/2 * (1 + tanh(u)), u = sqrt(2/pi) * (x + 0.044715*x^3), which is x / (1 + exp(-2u))."""
    u = fma(x * x, sp_f(float32(-2 * 0.7978845608028654 * 0.044715)), sp_f(float32(-2 * 0.7978845608028654)))
    return x / (sp_f(float32(1.0)) + vexp(x * u))
