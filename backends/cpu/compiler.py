"""From a Python function of four integers to object code, through Numba's front end and optimiser and an LLVM target machine of ours.

Numba's settings and caches are not touched: the function is lowered to an optimised module, and the machine code is made here, so that the
target can be another one than the host's. The entry is a plain C function; it ignores Numba's error status, because kernels cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import compiler, config, types
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from localllm.errors import BackendError


class Library(CPUCodeLibrary):
    """A library that stops after optimisation: nothing of it goes into Numba's own engine."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def module(self) -> Any:
        return self._final_module


@global_compiler_lock
def lower(function: Callable[..., None], name: str) -> Any:
    """The optimised LLVM module of a kernel; its entry point is ``name``."""
    if config.DISABLE_JIT:
        raise BackendError("NUMBA_DISABLE_JIT is set, and the kernels have to be compiled; unset it")
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    flags = compiler.Flags()
    flags.error_model = "numpy"
    flags.release_gil = True
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    library = Library(target.codegen(), name)
    result = compiler.compile_extra(typing, target, function, (types.int64,) * 4, types.none, flags, {}, library=library)
    library.finalize()
    module = library.module
    module.link_in(llvm.parse_assembly(_entry(target, result.fndesc, name, module.triple, module.data_layout)))
    for f in module.functions:
        if not f.is_declaration and f.name != name:
            f.linkage = "internal"
    module.verify()
    return module


def _entry(target: Any, descriptor: Any, name: str, triple: str, layout: str) -> str:
    convention = target.call_conv
    module = ir.Module(f"{name}.entry")
    module.triple, module.data_layout = triple, layout
    callee = ir.Function(module, convention.get_function_type(descriptor.restype, descriptor.argtypes), descriptor.llvm_func_name)
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 4), name)
    builder = ir.IRBuilder(entry.append_basic_block())
    convention.call_function(builder, callee, descriptor.restype, descriptor.argtypes, entry.args)
    builder.ret_void()
    return str(module)


def compile_kernel(function: Callable[..., None], name: str, machine: Any) -> bytes:
    """Object code with the C function ``name(int64, int64, int64, int64)``."""
    return bytes(machine.emit_object(lower(function, name)))


def assembly(function: Callable[..., None], name: str, machine: Any) -> str:
    """The same as text, for tests that look at instructions."""
    return str(machine.emit_assembly(lower(function, name)))
