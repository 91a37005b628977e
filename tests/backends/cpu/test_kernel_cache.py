"""Machine code on disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import localllm
from localllm.backends.cpu.kernel_cache import KernelCache, sources, symbol
from localllm.backends.cpu.target import current

KERNEL = ("norm", "add")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALLLM_CACHE", str(tmp_path))
    return tmp_path


def stored(folder: Path) -> list[Path]:
    return sorted((folder / "kernels").glob("*/*.o"))


def test_compiled_once(folder: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    cache = KernelCache(current())
    assert cache.addresses([KERNEL], lambda *step: calls.append(step))[KERNEL] == cache.addresses([KERNEL])[KERNEL]
    assert calls == [("compile", 0, 1), ("compile", 1, 1)]
    KernelCache(current()).addresses([KERNEL], lambda *step: pytest.fail("compiled again"))
    assert [path.name for path in stored(folder)] == [f"{symbol(KERNEL)}.o"]


@pytest.mark.parametrize("damage", [b"", b"x" * 100, None])
def test_damaged_objects_are_compiled_again(folder: Path, damage: bytes | None) -> None:
    KernelCache(current()).addresses([KERNEL])
    path = stored(folder)[0]
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    calls: list[tuple[str, int, int]] = []
    for _ in range(2):
        assert KernelCache(current()).addresses([KERNEL], lambda *step: calls.append(step))[KERNEL]
    assert len(calls) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LOCALLLM_CACHE", str(tmp_path / "file"))
    assert KernelCache(current()).addresses([KERNEL])[KERNEL]


def test_a_warm_start_imports_no_compiler(folder: Path) -> None:
    code = f"from localllm.backends.cpu.kernel_cache import kernels\nkernels().addresses([{KERNEL!r}])\n"
    code += "import sys\nprint('numba' in sys.modules)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True) for _ in range(2)]
    assert [run.stdout.strip() for run in runs] == ["True", "False"]


def test_every_source_of_a_kernel_is_in_its_key() -> None:
    found = {path.resolve() for path in sources()}
    package = Path(localllm.__file__).parent
    apart = {"localllm.errors"}  # its classes alone
    for source in [path for path in found if "backends" in path.parts]:
        for name in re.findall(r"^(?:from|import) (localllm[\w.]*)", source.read_text("utf-8"), re.MULTILINE):
            file = package.parent.joinpath(*name.split("."))
            file = file.with_suffix(".py") if file.with_suffix(".py").exists() else file / "__init__.py"
            assert name in apart or file.name == "__init__.py" or file.resolve() in found, (source.name, name)
