"""The metadata says what the folders hold, however the checkout was made."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import localllm
from tests.conftest import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINKED = ("backends", "quant")


def packages(folder: Path, name: str) -> set[str]:
    """The packages at and below a folder, whose own name is given."""
    found = {name}
    for init in folder.glob("*/__init__.py"):
        if not init.parent.is_symlink():
            found |= packages(init.parent, f"{name}.{init.parent.name}")
    return found


def test_every_package_is_listed() -> None:
    there = packages(ROOT / "localllm", "localllm").union(*(packages(ROOT / name, f"localllm.{name}") for name in LINKED))
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert listed == sorted(there)
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"localllm": "localllm", **{f"localllm.{name}": name for name in LINKED}}


@pytest.mark.parametrize("name", LINKED)
def test_top_level_packages_are_links_or_files(name: str) -> None:
    place = ROOT / "localllm" / name
    assert place.is_symlink() or not place.is_dir()
    assert (ROOT / name / "__init__.py").is_file()


@pytest.mark.parametrize("name", LINKED)
def test_a_checkout_without_links_works(tmp_path: Path, name: str) -> None:
    copy = tmp_path / "localllm"
    copy.mkdir()
    (copy / "__init__.py").write_bytes((ROOT / "localllm" / "__init__.py").read_bytes())
    (copy / name).write_text(f"../{name}")
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("found = True\n")
    (tmp_path / "backends").mkdir(exist_ok=True)
    code = f"import localllm.{name}; print(localllm.{name}.found)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert ran.stdout.strip() == "True", ran.stderr


def test_one_version_and_no_upper_bound_of_python() -> None:
    project = PROJECT["project"]
    assert project["version"] == localllm.__version__
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "Apache-2.0" and "Apache License" in (ROOT / "LICENSE").read_text()
    assert (ROOT / "localllm" / "py.typed").exists() and "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["localllm"]


def test_import_is_light() -> None:
    code = "import sys, localllm; print(*sorted(sys.modules))"
    modules = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    heavy = {re.split(r"[<>=\[]", requirement)[0].replace("-", "_") for requirement in PROJECT["project"]["dependencies"]}
    assert not modules & heavy


def test_readme_opens_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    run, test = re.findall(r"^pip install .*$", readme, re.MULTILINE)[:2]
    assert run == 'pip install . && localllm run smollm2:135m "Why is the sky blue?"'
    assert test == 'pip install ".[test]" && python -m pytest'


def test_changelog_has_this_version_or_unreleased() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings and headings[0] in ("Unreleased", localllm.__version__)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_of_the_documentation_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not ((ROOT / page).parent / link).exists()] == []
