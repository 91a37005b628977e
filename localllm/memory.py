"""How much memory a process can still take on this machine, the limits of containers included."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

from localllm.errors import OutOfMemoryError

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""cgroup v1 says "no limit" with a number near 2**63."""


def free() -> int | None:
    """Bytes that can be taken before the system runs out or a limit of ours is reached; None where it can't be told."""
    if sys.platform == "linux":
        known = [bytes_ for bytes_ in (_meminfo(_PROC), *_cgroups(_PROC, _CGROUP)) if bytes_ is not None]
        return min(known, default=None)
    return _windows() if sys.platform == "win32" else _darwin() if sys.platform == "darwin" else None


def require(need: int, what: str, *, force: bool = False) -> None:
    """Raises OutOfMemoryError, with the numbers, where ``need`` bytes are not free; ``force`` lets it pass."""
    there = None if force else free()
    if there is not None and need > there:
        raise OutOfMemoryError(
            f"{what} needs {size(need)} of memory and {size(there)} is free; "
            "close other programs, take a smaller model or quantisation, or force it (--force, force=True)"
        )


def size(count: int) -> str:
    """Bytes for people: 1.5 GB is 1.5 * 10^9."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}" if count < 100 * factor else f"{count / factor:.0f} {unit}"
    return f"{count} bytes"


def _meminfo(proc: Path) -> int | None:
    """What the kernel thinks new programs can have without swapping."""
    for line in _read(proc / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroups(proc: Path, root: Path) -> Iterator[int | None]:
    """What each control group above us has left. A container often sees its own group as the root, so the root is looked at too."""
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for folder in _upwards(root, path):
                yield _left(folder, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            for folder in _upwards(root / "memory", path):
                yield _left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _upwards(root: Path, path: str) -> Iterator[Path]:
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for n in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:n])


def _left(folder: Path, limit_file: str, usage_file: str, cache_field: str) -> int | None:
    """Limit minus use; pages of files not used lately go before anything fails, so they count as free."""
    limit, usage = _read(folder / limit_file).strip(), _read(folder / usage_file).strip()
    if not limit.isdigit() or not usage.isdigit() or int(limit) >= _NO_LIMIT:
        return None
    cache = [int(line.split()[1]) for line in _read(folder / "memory.stat").splitlines() if line.startswith(cache_field + " ")]
    return max(0, int(limit) - int(usage) + sum(cache))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total_physical", ctypes.c_uint64),
        ("available_physical", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended_virtual", ctypes.c_uint64),
    )


def _windows() -> int | None:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    library = getattr(ctypes, "windll").kernel32  # noqa: B009 (mypy on other systems does not know the name)
    if not library.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return min(int(status.available_physical), int(status.available_page_file))


def _darwin() -> int | None:
    """Free and inactive pages, as host_statistics64 counts them (HOST_VM_INFO64; fields 0 and 2 of vm_statistics64)."""
    library = ctypes.CDLL("/usr/lib/libSystem.B.dylib")
    library.mach_host_self.restype = ctypes.c_uint32
    fields = (ctypes.c_uint32 * 128)()
    count, page = ctypes.c_uint32(128), ctypes.c_uint64()
    host = ctypes.c_uint32(library.mach_host_self())
    if library.host_statistics64(host, ctypes.c_int(4), fields, ctypes.byref(count)):
        return None
    if library.host_page_size(host, ctypes.byref(page)):
        return None
    return (fields[0] + fields[2]) * page.value
