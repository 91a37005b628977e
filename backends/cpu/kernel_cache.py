"""Compiled kernels: found on disk as object code, or compiled, and loaded into this process.

A warm start needs LLVM's loader alone and imports neither Numba nor a kernel's source. The folder is named by the digest of all that
matters (every kernel source, Numba, llvmlite, gguf for its grids, the target and the processor), so an object can never be stale.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from localllm.backends.cpu.target import Target, current, features, processor
from localllm.folders import cache_folder

KernelId = tuple[str | int, ...]
"""(module below kernels/, factory in it, arguments of the factory ...): names a kernel and says how to make it."""


_NUMBA = {f"NUMBA_{name}" for name in ("OPT", "DEBUGINFO", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "LLVM_PASS_TIMINGS", "DEBUG")}
"""Settings of Numba's that change what it compiles, where a user has set them."""


def sources() -> list[Path]:
    """The files of this package that kernels are made from."""
    here = Path(__file__).parent
    names = "arguments", "arguments_load", "arguments_matmul", "compiler", "kv_types", "layout", "records", "target"
    grids = here.parents[1] / "quant"
    return [*(here / f"{name}.py" for name in names), grids / "grids.py", grids / "blocks.py", *sorted((here / "kernels").glob("*.py"))]


@cache
def digest(target: Target) -> str:
    """Digest of everything that the machine code depends on."""
    h = hashlib.sha256()
    for source in sources():
        h.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    settings = sorted((name, value) for name, value in os.environ.items() if name in _NUMBA)
    versions = _version("numba"), _version("llvmlite"), _version("gguf", "quants.py"), sys.platform, sys.version_info[:2]
    h.update(repr((target, processor(target), features(target), versions, settings)).encode())
    return h.hexdigest()[:20]


def _version(package: str, file: str = "_version.py") -> bytes | str:
    """A file that tells one version of a package from another, without importing it: its metadata would take 20 ms of every start. The
    grids of formats come out of gguf's ``quants.py``."""
    spec = importlib.util.find_spec(package)
    with contextlib.suppress(OSError):
        if spec is not None and spec.origin:
            return Path(spec.origin).with_name(file).read_bytes()
    from importlib.metadata import version

    return version(package)


class KernelCache:
    """The kernels of this process, by id; one instance (``kernels()``)."""

    def __init__(self, target: Target) -> None:
        import llvmlite.binding as llvm

        self._llvm = llvm
        self.target = target
        self.folder = cache_folder() / "kernels" / f"{target.name}-{digest(target)}"
        for start in ("initialize", "initialize_native_target", "initialize_native_asmprinter"):
            with contextlib.suppress(RuntimeError):  # newer llvmlite does this by itself and says so
                getattr(llvm, start)()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine())
        self._addresses: dict[KernelId, int] = {}
        self._lock = threading.RLock()

    def machine(self) -> Any:
        """LLVM's description of the target."""
        llvm = self._llvm
        return llvm.Target.from_default_triple().create_target_machine(
            cpu=processor(self.target), features=features(self.target), opt=3, reloc="default", codemodel="jitdefault", jit=True
        )

    def addresses(self, ids: Iterable[KernelId], progress: Callable[[str, int, int], None] | None = None) -> dict[KernelId, int]:
        """The address of every kernel asked for; those that are neither loaded nor on disk are compiled, with progress("compile", i, n)."""
        with self._lock:
            return self._find(list(dict.fromkeys(ids)), progress)

    def _find(self, wanted: list[KernelId], progress: Callable[[str, int, int], None] | None) -> dict[KernelId, int]:
        objects = {i: self._stored(i) for i in wanted if i not in self._addresses}
        missing = [i for i, data in objects.items() if data is None]
        for done, i in enumerate(missing):
            if progress:
                progress("compile", done, len(missing))
            objects[i] = self._compile(i)
        if progress and missing:
            progress("compile", len(missing), len(missing))
        for data in objects.values():
            assert data is not None
            self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(data))
        if objects:
            self._engine.finalize_object()
        for i in objects:
            self._addresses[i] = self._engine.get_function_address(symbol(i))
            assert self._addresses[i], i
        return {i: self._addresses[i] for i in wanted}

    def _stored(self, i: KernelId) -> bytes | None:
        try:
            data = (self.folder / f"{symbol(i)}.o").read_bytes()
        except OSError:
            return None
        check, data = data[:32], data[32:]
        return data if hashlib.sha256(data).digest() == check else None

    def _compile(self, i: KernelId) -> bytes:
        import tempfile

        from localllm.backends.cpu.compiler import compile_kernel

        module = importlib.import_module(f"localllm.backends.cpu.kernels.{i[0]}")
        data = compile_kernel(getattr(module, str(i[1]))(*i[2:]), symbol(i), self.machine())
        with contextlib.suppress(OSError):  # a folder that can't be written costs time, not function
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as f:
                f.write(hashlib.sha256(data).digest() + data)
            try:
                os.replace(f.name, self.folder / f"{symbol(i)}.o")
            finally:
                Path(f.name).unlink(missing_ok=True)
        return data


def symbol(i: KernelId) -> str:
    """The name of a kernel's machine code."""
    return "localllm_" + "_".join(str(part).replace("-", "m") for part in i)


_kernels: KernelCache | None = None
_lock = threading.Lock()


def kernels() -> KernelCache:
    """The kernel cache of this process; there is never a second one, since machine code lives as long as its cache."""
    global _kernels
    if _kernels is None:
        with _lock:
            _kernels = _kernels or KernelCache(current())
    return _kernels
