"""Compiles kernels for AArch64, on any machine: a program of its own, since a process has one target.

Prints one JSON object: for each kernel how often its assembly has which instruction, and which functions of others it calls. With the word
``all``, for every kernel that test_ir lists.
"""

from __future__ import annotations

import importlib
import json
import platform
import re
import sys
from collections import Counter
from typing import Any

from localllm.backends.cpu.kernel_cache import KernelId

KERNELS: list[KernelId] = [
    ("matmul", "few", "Q4_K", 1),
    ("matmul", "few", "Q5_0", 8),
    ("matmul", "many", "IQ4_XS"),
    ("matmul", "many", "Q6_K"),
    ("floats", "few", "F16", 1),
    ("attention_few", "attend_few", 1),
    ("quantise", "rows", 1),
    ("norm", "rms_norm"),
    ("executor", "serve"),
]
"""One of each idea; what is quick to compile where there is a choice."""


def report(text: str) -> dict[str, dict[str, int]]:
    """What an assembly text has: instructions, and calls of functions that are not in it."""
    called = Counter(re.findall(r"^\tb(?:l)?\t([A-Za-z_]\w*)$", text, re.MULTILINE))
    own = set(re.findall(r"^([A-Za-z_]\w*):", text, re.MULTILINE))
    instructions = Counter(re.findall(r"^\t([a-z][\w.]*)\b", text, re.MULTILINE))
    return {"instructions": dict(instructions), "calls": {name: n for name, n in called.items() if name not in own}}


def machine() -> Any:
    """LLVM's description of the target. Raises RuntimeError where this LLVM has no AArch64."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(
        cpu="cortex-a76", opt=3, reloc="pic", codemodel="small"
    )


def main() -> None:
    """Compile them all."""
    platform.machine = lambda: "aarch64"
    from localllm.backends.cpu import target

    target.host_features = lambda: frozenset({"dotprod"})  # type: ignore[assignment]
    import llvmlite.binding as llvm

    from localllm.backends.cpu.compiler import lower

    assert target.current().name == "neon"
    there, found = machine(), {}
    for i in _chosen():
        made = getattr(importlib.import_module(f"localllm.backends.cpu.kernels.{i[0]}"), str(i[1]))(*i[2:])
        text = str(lower(made, "kernel"))
        text = re.sub(r"^target triple = .*$", f'target triple = "{there.triple}"', text, flags=re.MULTILINE)
        text = re.sub(r"^target datalayout = .*$", f'target datalayout = "{there.target_data}"', text, flags=re.MULTILINE)
        parsed = llvm.parse_assembly(text)
        parsed.verify()
        found["-".join(map(str, i))] = report(there.emit_assembly(parsed))
    print(json.dumps(found))


def _chosen() -> list[KernelId]:
    if sys.argv[1:] != ["all"]:
        return KERNELS
    from tests.backends.cpu import test_ir

    return test_ir.KERNELS


if __name__ == "__main__":
    main()
