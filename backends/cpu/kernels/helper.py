"""``@helper``: a jitted function that only kernels call.

Numba's ``njit`` makes machine code of every function at once, and LLVM rewrites the module while it does so; what a caller then links and
optimises again is that remainder. Memory named by integers does not survive this: an address ``64*i + p`` becomes an offset from a null
pointer in the loop's first turn, and the store is dropped. A helper is linked as it was optimised, and no machine code is made of it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from numba import njit
from numba.core.compiler import Compiler

from localllm.backends.cpu.compiler import Library


class _HelperLibrary(Library):
    """A library that nothing is executed of: Numba asks it for an address and to fill in an environment."""

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return SimpleNamespace(set_env=lambda name, environment: None)


class _HelperCompiler(Compiler):
    def __init__(self, typing: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, variables: Any) -> None:
        flags.no_cpython_wrapper = True
        flags.no_cfunc_wrapper = True
        flags.error_model = "numpy"
        library = _HelperLibrary(target.codegen(), "helper")
        super().__init__(typing, target, library, args, result, flags, variables)


F = TypeVar("F", bound=Callable[..., Any])


def helper(function: F) -> F:
    """Decorator of a function that kernels call. Python can't call it: it has no entry."""
    jitted: F = njit(pipeline_class=_HelperCompiler)(function)
    return jitted
