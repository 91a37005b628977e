"""No kernel reads or writes outside of what it is given: see guards.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.cpu.guards import FAMILIES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
ROOT = Path(__file__).resolve().parents[3]
_TOUCH = """
from tests.backends.cpu.driver import guarded
import ctypes
for offset, at_end in ((100, True), (-1, False)):
    memory = guarded(100, at_end)
    print(ctypes.string_at(memory.ctypes.data, 100) == bytes([255]) * 100, flush=True)
    ctypes.string_at(memory.ctypes.data + offset * {outside}, 1)
"""


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_stays_inside(family: str) -> None:
    done = _python("-m", "tests.backends.cpu.guards", family)
    assert (done.returncode, done.stdout.strip()) == (0, "inside"), done


def test_the_guard_is_there() -> None:
    assert _python("-c", _TOUCH.format(outside=0)).returncode == 0
    assert _python("-c", _TOUCH.format(outside=1)).returncode < 0
