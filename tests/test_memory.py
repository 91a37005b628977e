from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localllm import memory
from localllm.errors import OutOfMemoryError

MEMINFO = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"
AVAILABLE = 8_000_000 * 1024


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def linux(monkeypatch: pytest.MonkeyPatch, folder: Path, files: dict[str, str]) -> int | None:
    write(folder, files)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(memory, "_PROC", folder / "proc")
    monkeypatch.setattr(memory, "_CGROUP", folder / "cgroup")
    return memory.free()


def test_this_machine_has_some_memory() -> None:
    there = memory.free()
    assert there is None or 10**6 < there < 10**15


def test_without_groups_it_is_what_the_kernel_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert linux(monkeypatch, tmp_path, {"proc/meminfo": MEMINFO}) == AVAILABLE


def test_nothing_known_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert linux(monkeypatch, tmp_path, {}) is None


def test_a_version_2_group_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/a/b\n",
        "cgroup/a/memory.max": "1000000000\n",
        "cgroup/a/memory.current": "300000000\n",
        "cgroup/a/memory.stat": "anon 5\ninactive_file 50000000\nactive_file 7\n",
        "cgroup/a/b/memory.max": "max\n",
        "cgroup/a/b/memory.current": "100\n",
    }
    assert linux(monkeypatch, tmp_path, files) == 750_000_000


def test_a_container_sees_its_limit_at_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/../../somewhere\n",
        "cgroup/memory.max": "500000000\n",
        "cgroup/memory.current": "600000000\n",
    }
    assert linux(monkeypatch, tmp_path, files) == 0


def test_a_version_1_group_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "7:cpu,cpuacct:/x\n5:memory:/docker/1:2\n",
        "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "cgroup/memory/memory.usage_in_bytes": "5\n",
        "cgroup/memory/docker/1:2/memory.limit_in_bytes": "2000\n",
        "cgroup/memory/docker/1:2/memory.usage_in_bytes": "1500\n",
        "cgroup/memory/docker/1:2/memory.stat": "inactive_file 1\ntotal_inactive_file 200\n",
    }
    assert linux(monkeypatch, tmp_path, files) == 700


def test_what_does_not_fit_is_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: 1_200_000_000)
    with pytest.raises(OutOfMemoryError, match=r"m\.gguf needs 1\.9 GB of memory and 1\.2 GB is free.*force=True"):
        memory.require(1_900_000_000, "m.gguf")
    memory.require(1_900_000_000, "m.gguf", force=True)
    memory.require(1_100_000_000, "m.gguf")
    monkeypatch.setattr(memory, "free", lambda: None)
    memory.require(10**15, "m.gguf")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (1500, "1.5 kB"), (397_810_000, "398 MB"), (1_234_000_000, "1.23 GB"), (5 * 10**12, "5000 GB")]
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert memory.size(count) == text


def test_other_systems_without_a_way_to_tell_know_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    assert memory.free() is None
