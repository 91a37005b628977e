"""Which instructions the kernels are compiled for.

A target is every feature that changes bits or the choice of instructions; its name is part of every cache key. The best one that the
processor has is used. ``LOCALLLM_CPU`` forces another, for tests; it is read once, before anything is compiled.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache

from localllm.errors import OptionError

_AVX2 = {"avx2", "fma", "f16c"}
_AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"} | _AVX2


@dataclass(frozen=True, slots=True)
class Target:
    """``cpu``: LLVM's name of the processor that code is generated for. The flags say which instructions the kernels may name."""

    name: str
    cpu: str
    vnni512: bool = False
    vnni256: bool = False
    avx2: bool = False
    neon: bool = False
    fma: bool = False
    half: bool = False


_X86 = {
    "avx512_vnni": (_AVX512, Target("avx512_vnni", "cascadelake", vnni512=True, avx2=True, fma=True, half=True)),
    "avx_vnni": (_AVX2 | {"avxvnni"}, Target("avx_vnni", "alderlake", vnni256=True, avx2=True, fma=True, half=True)),
    "avx2": (_AVX2, Target("avx2", "haswell", avx2=True, fma=True, half=True)),
    "generic": (set[str](), Target("generic", "x86-64")),
}
_ARM = {
    "neon": ({"dotprod"}, Target("neon", "cortex-a76", neon=True, fma=True, half=True)),
    "generic": (set[str](), Target("generic", "generic", fma=True, half=True)),
}
_OTHER = {"generic": (set[str](), Target("generic", "generic"))}


def family() -> dict[str, tuple[set[str], Target]]:
    """The targets of this kind of processor, best first: name -> (features it needs, target)."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return _X86
    return _ARM if machine in ("aarch64", "arm64") else _OTHER


@cache
def host_features() -> frozenset[str]:
    """LLVM's names of the features that this processor has."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    found = {name for name, present in features.items() if present}
    if platform.machine().lower() == "arm64" and platform.system() == "Darwin":
        found.add("dotprod")  # every Apple processor has it; old LLVMs don't list it there
    return frozenset(found)


def available() -> list[str]:
    """Names of the targets that this machine can run, best first."""
    return [name for name, (needs, _) in family().items() if needs <= host_features()]


@cache
def processor(target: Target) -> str:
    """The processor that LLVM tunes for: this one where the target is its best, so that cache folders can travel between machines."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name()) if available()[0] == target.name else target.cpu


@cache
def features(target: Target) -> str:
    """LLVM's feature string for that processor: this machine's own, which a virtual machine may have fewer of than its name says."""
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_features().flatten()) if processor(target) == llvm.get_host_cpu_name() else ""


_chosen: tuple[str, Target] | None = None


def current() -> Target:
    """The target of this process.

    Raises OptionError where ``LOCALLLM_CPU`` names one that is unknown or that this machine can't run, or was changed after the first use.
    """
    global _chosen
    wish = os.environ.get("LOCALLLM_CPU", "")
    if _chosen is None:
        _chosen = (wish, _choose(wish))
    elif wish != _chosen[0]:
        raise OptionError(
            f"LOCALLLM_CPU is now {wish!r}, but this process already compiles for {_chosen[1].name!r}; set it before the start"
        )
    return _chosen[1]


def _choose(wish: str) -> Target:
    names = available()
    if wish and wish not in names:
        known = "can't be run by this machine" if wish in family() else "is not known"
        raise OptionError(f"LOCALLLM_CPU: target {wish!r} {known}; it can run {', '.join(names)}")
    return family()[wish or names[0]][1]
