"""The choice of instructions."""

from __future__ import annotations

import pytest

from localllm import backends
from localllm.backends.cpu import target
from localllm.errors import BackendError, OptionError


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_chosen", None)
    monkeypatch.delenv("LOCALLLM_CPU", raising=False)


def test_the_best_is_taken() -> None:
    assert target.current().name == target.available()[0]
    assert target.available()[-1] == "generic"


def test_another_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALLLM_CPU", "generic")
    assert target.current().name == "generic"


def test_not_after_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    target.current()
    monkeypatch.setenv("LOCALLLM_CPU", "generic")
    with pytest.raises(OptionError, match="before the start"):
        target.current()


@pytest.mark.parametrize(("wish", "why"), [("avx3", "not known"), ("neon" if "avx2" in target.family() else "avx2", "not known")])
def test_names_that_are_refused(monkeypatch: pytest.MonkeyPatch, wish: str, why: str) -> None:
    monkeypatch.setenv("LOCALLLM_CPU", wish)
    with pytest.raises(OptionError, match=why):
        target.current()


def test_features_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "host_features", lambda: frozenset[str]())
    assert target.available() == ["generic"]
    best = next(iter(target.family()))
    monkeypatch.setenv("LOCALLLM_CPU", best)
    if best != "generic":
        with pytest.raises(OptionError, match="can't be run"):
            target.current()


def test_a_name_that_is_refused_is_an_error_and_no_other_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALLLM_CPU", "bogus")
    with pytest.raises(BackendError, match="bogus"):
        backends.get("auto")
