"""What the compiled code of every kernel must not contain, whatever it computes.

KERNELS names each kernel of the package with arguments for its factory; test_every_factory_is_listed finds one that is missing.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import localllm.backends.cpu
from localllm.backends.cpu.kernel_cache import KernelId, kernels, symbol

KERNELS: list[KernelId] = [
    ("norm", "rms_norm"),
    ("norm", "add"),
    ("quantise", "gated", "silu", 8),
    ("peaks", "read"),
    ("peaks", "dots"),
    ("glu", "glu", "silu"),
    ("glu", "glu", "gelu"),
    ("rope", "rope_store", "neox"),
    ("rope", "rope_store", "norm"),
    ("rope", "rope_store", "none"),
    ("rope", "rope_store", "neox", "q8_0", "q8_0"),
    ("rope", "rope_store", "norm", "q4_0", "q4_0"),
    ("rope", "rope_store", "none", "f32", "f32"),
    ("attention_few", "attend_few", 1),
    ("attention_few", "attend_few", 7),
    ("attention_few", "attend_few", 7, "q8_0", "q8_0"),
    ("attention_few", "attend_few", 3, "q4_0", "q4_0"),
    ("attention_few", "attend_few", 3, "f32", "f32"),
    ("attention_few", "merge_few"),
    ("attention_many", "attend_many"),
    ("attention_many", "attend_many", "q8_0", "q8_0"),
    ("attention_many", "attend_many", "q4_0", "q4_0"),
    ("attention_many", "attend_many", "f32", "f32"),
    ("moe", "route"),
    ("choose", "likeliest"),
    *[("executor", name) for name in ("post", "rows", "leave", "serve")],
    ("embed", "rows", "Q4_K"),
    ("embed", "rows", "F16"),
    ("embed", "gather"),
    ("quantise", "rows", 4),
    ("matmul", "few", "Q4_K", 2),
    ("matmul", "few", "Q8_0", 1),
    ("matmul", "many", "IQ4_XS"),
    ("floats", "few", "BF16", 1),
    ("floats", "many", "F16"),
    ("experts", "rows", "Q6_K"),
    ("experts", "total", "Q6_K"),
    ("repack", "pack", "Q5_K"),
    *[("repack", "pack", kind) for kind in ("TQ1_0", "MXFP4", "NVFP4", "Q3_K", "IQ1_M", "IQ2_XS", "IQ3_S")],
    *[("matmul", "few", kind, 1) for kind in ("Q2_K", "IQ1_S", "IQ1_M", "IQ2_XS", "MXFP4", "NVFP4", "Q1_0", "TQ1_0")],
    ("repack", "floats", "F16"),
    ("load", "load"),
]
INNER_LOOPS: dict[KernelId, int] = {
    ("attention_few", "attend_few", 6): 2,
    ("attention_few", "attend_few", 7): 2,
    ("attention_few", "attend_few", 6, "q8_0", "q8_0"): 1,
    ("attention_many", "attend_many"): 2,
    ("floats", "many", "F16"): 1,
    ("matmul", "few", "Q4_K", 8): 1,
}
"""Kernels whose innermost loops have to keep all sums in registers, and how many such loops there are at least."""
_FLAGS = re.compile(
    r"\b(?:f(?:add|sub|mul|div|rem|neg|cmp)|call|select|phi)\s+(?:\w+ )*?(?:fast|reassoc|contract|nnan|ninf|nsz|arcp|afn)\b"
)
SYSTEM = {"syscall", "sched_yield", "__ulock_wait", "__ulock_wake", "WaitOnAddress", "WakeByAddressAll", "memset", "memcpy", "memmove"}
_FOLDER = Path(localllm.backends.cpu.__file__).parent / "kernels"


def _ids(i: KernelId) -> str:
    return "-".join(map(str, i))


@cache
def _factory(i: KernelId) -> Any:
    return getattr(importlib.import_module(f"localllm.backends.cpu.kernels.{i[0]}"), str(i[1]))(*i[2:])


@cache
def _ir(i: KernelId) -> str:
    from localllm.backends.cpu.compiler import lower

    return str(lower(_factory(i), symbol(i)))


@pytest.mark.parametrize("i", KERNELS, ids=_ids)
def test_no_instruction_may_be_reordered(i: KernelId) -> None:
    assert not _FLAGS.search(_ir(i))
    assert "fmuladd" not in _ir(i)


@pytest.mark.parametrize("line", ["= fadd fast float %a, %b", "= tail call nnan <16 x float> @llvm.fma", "= fcmp reassoc nsz olt float %a"])
def test_such_an_instruction_would_be_found(line: str) -> None:
    assert _FLAGS.search(f"  %x {line}")


@pytest.mark.parametrize("i", KERNELS, ids=_ids)
def test_nothing_can_be_raised(i: KernelId) -> None:
    assert "picklebuf" not in _ir(i)  # the pickled exception that Numba leaves where something raises
    called = set(re.findall(r"^declare [^@]*@\"?([\w.$]+)", _ir(i), re.MULTILINE))
    assert {name for name in called if not name.startswith("llvm.")} <= SYSTEM


@pytest.mark.parametrize("i", KERNELS, ids=_ids)
def test_no_address_starts_at_null(i: KernelId) -> None:
    """LLVM drops what is stored through an offset from null. Such addresses come from functions that are not linked as ``helper`` does."""
    assert not re.search(r"getelementptr[^\n]*, ptr (?:null|inttoptr)", _ir(i))


@pytest.mark.parametrize("i", INNER_LOOPS, ids=_ids)
def test_inner_loops_keep_to_registers(i: KernelId) -> None:
    from localllm.backends.cpu.compiler import assembly

    if not kernels().target.vnni512:
        pytest.skip("a target with other registers")
    text = assembly(_factory(i), symbol(i), kernels().machine())
    loops = [m[0] for m in re.finditer(r"^(\.LBB\w+):\n(?:(?!\.LBB\w+:).*\n)*?\tj\w+\t\1\n", text, re.MULTILINE)]
    inner = [loop for loop in loops if len(re.findall(r"vfmadd\w+ps", loop)) >= 12]
    assert len(inner) >= INNER_LOOPS[i]
    assert not [loop for loop in inner if "(%rsp" in loop]


def test_every_factory_is_listed() -> None:
    found = set()
    for path in _FOLDER.glob("*.py"):
        for name in re.findall(r"^def ([a-z]\w*)\([^)]*\) -> Callable\[\.\.\., None\]:", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.add((path.stem, name))
    assert found - {(str(i[0]), str(i[1])) for i in KERNELS} == set()
