"""Prefix reuse over the cpu backend: what follows a reused beginning has the bits of a fresh line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import localllm
from localllm.errors import ContextFullError
from localllm.generation import saving
from tests import tiny

TOKENS = [int(token) for token in np.random.default_rng(3).integers(3, 200, 200)]
OTHERS = TOKENS[::-1]
PROMPTS = [
    TOKENS[:70],  # nothing to continue
    TOKENS[:70],
    TOKENS[:64],  # back to the border of a page
    TOKENS[:65] + OTHERS[:3],
    TOKENS[:130],
    TOKENS[:40] + OTHERS[:60],  # parts in the middle of a page
    OTHERS[:90],
    TOKENS[:129] + OTHERS[:40],
    OTHERS[:89],
]


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / f"{request.param}.gguf"
    shape = {"type": "Q4_0", "layers": 7, "window": 16, "head_dim": 32} if request.param == "gemma3" else {"type": "Q8_0"}
    return tiny.write(path, request.param, **shape)


@pytest.fixture(scope="module")
def fresh(path: Path) -> Iterator[localllm.Model]:
    with localllm.load(path, backend="cpu", cache_ram=0, cache_disk=0) as model:
        yield model


@pytest.mark.parametrize("batch", [1, 7, 64, 512])
def test_logits_have_the_bits_of_a_fresh_line(path: Path, fresh: localllm.Model, batch: int) -> None:
    reused = 0
    with localllm.load(path, backend="cpu", batch=batch, cache_disk=0) as model:
        for prompt in PROMPTS:
            with model._continued(prompt) as line:
                reused += line.length
                assert np.array_equal(line.feed(prompt[line.length :]), fresh.logits(prompt))
                for token in OTHERS[:3]:  # an answer
                    line.feed([token])
    assert reused >= 70


@pytest.mark.parametrize("batch", [5, 512])
def test_answers_are_those_without_a_cache(path: Path, fresh: localllm.Model, batch: int) -> None:
    notes = set()
    with localllm.load(path, backend="cpu", batch=batch, cache_disk=0) as model:
        for prompt in PROMPTS:
            found = model.generate(prompt, seed=1, temperature=1, max_tokens=8)
            plain = fresh.generate(prompt, seed=1, temperature=1, max_tokens=8)
            assert (found.text, found.tokens) == (plain.text, plain.tokens)
            assert (plain.usage.cached_tokens, plain.usage.cache) == (0, "the cache is off")
            assert found.usage.cached_tokens + found.timings.prompt_tokens == len(prompt) == found.usage.prompt_tokens
            notes.add(found.usage.cache)
    assert "memory" in notes and "nothing is cached yet" in notes


def test_threads_share_lines(path: Path, fresh: localllm.Model) -> None:
    expected = [fresh.generate(prompt, seed=1, temperature=1, max_tokens=4).tokens for prompt in PROMPTS]
    wrong: list[object] = []
    with localllm.load(path, backend="cpu", cache_ram=1, cache_disk=0) as model:

        def work(seed: int) -> None:
            try:
                for n in np.random.default_rng(seed).integers(0, len(PROMPTS), 40):
                    found = model.generate(PROMPTS[n], seed=1, temperature=1, max_tokens=4).tokens
                    if found != expected[n]:
                        wrong.append((n, found))
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert model.cache is not None and 0 < model.cache.bytes <= 1 << 20
        model.cache.clear()
        pages = [page for pool in model._session._open().storage.pools for page in pool._free]  # type: ignore[attr-defined]
        assert len({id(page) for page in pages}) == len(pages) and all(page.holders == 0 for page in pages)


def test_lines_share_their_pages(path: Path) -> None:
    with localllm.load(path, backend="cpu") as model:
        assert model.cache is not None
        model.generate(TOKENS[:140], max_tokens=2)
        one = model.cache.bytes
        model.generate(TOKENS[:130] + OTHERS[:5], max_tokens=2)
        assert one < model.cache.bytes < 2 * one
        model.cache.clear()
        assert model.cache.bytes == 0


def test_an_interrupted_prompt_goes_on_where_it_was(path: Path, fresh: localllm.Model) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if done == 60:
            raise KeyboardInterrupt

    with localllm.load(path, backend="cpu", batch=20) as model:
        with pytest.raises(KeyboardInterrupt):
            model.generate(TOKENS[:100], progress=interrupt)
        told: list[int] = []
        found = model.generate(TOKENS[:100], seed=1, max_tokens=3, progress=lambda what, done, total: told.append(done))
        assert (found.usage.cached_tokens, told) == (60, [60, 80, 100])
        assert found.tokens == fresh.generate(TOKENS[:100], seed=1, max_tokens=3).tokens


def test_a_closed_model_has_no_cache(path: Path) -> None:
    model = localllm.load(path, backend="cpu")
    stream = model.stream(TOKENS[:10], ignore_eos=True)
    next(stream)
    model.close()
    assert model.cache is not None and model.cache.bytes == 0
    stream.close()
    assert model.cache.bytes == 0


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is worth writing and reading."""
    monkeypatch.setattr(saving, "PAYS", 1e-9)
    monkeypatch.setattr(saving, "_READ", 1e15)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("batch", [7, 512])
def test_a_later_process_has_the_bits_too(path: Path, fresh: localllm.Model, kv_folder: Path, batch: int) -> None:
    with localllm.load(path, backend="cpu", batch=50) as model:
        first = model.generate(TOKENS[:130], seed=1, temperature=1, max_tokens=2)
        assert first.usage.cache == "nothing is cached yet, nor on disk"
    for prompt in (TOKENS[:132], TOKENS[:130], TOKENS[:130] + OTHERS[:30], TOKENS[:110] + OTHERS[:20]):
        with localllm.load(path, backend="cpu", batch=batch) as model:
            with model._continued(prompt) as line:
                assert line.past.note == "disk" and line.length > 60
                assert np.array_equal(line.feed(prompt[line.length :]), fresh.logits(prompt))
            found = model.generate(prompt, seed=1, temperature=1, max_tokens=8)
            assert found.tokens == fresh.generate(prompt, seed=1, temperature=1, max_tokens=8).tokens
    assert list(kv_folder.glob("*/*.kv"))


@pytest.mark.usefixtures("eager")
def test_damage_on_disk_costs_time_and_no_answer(path: Path, fresh: localllm.Model, kv_folder: Path) -> None:
    expected = fresh.generate(TOKENS[:130], seed=1, max_tokens=8).tokens
    for place in (0, 70, 700, -1, -2000):
        with localllm.load(path, backend="cpu") as model:
            model.generate(TOKENS[:130], seed=1, max_tokens=8)
        (file,) = kv_folder.glob("*/*")
        data = bytearray(file.read_bytes())
        data[place] ^= 4
        file.write_bytes(data)
        with localllm.load(path, backend="cpu", cache_ram=0, cache_disk=1) as model:
            found = model.generate(TOKENS[:130], seed=1, max_tokens=8)
            assert (found.tokens, found.usage.cached_tokens) == (expected, 0)


@pytest.mark.usefixtures("eager")
def test_other_weights_have_other_lines(path: Path, tmp_path: Path, kv_folder: Path) -> None:
    with localllm.load(path, backend="cpu") as model:
        model.generate(TOKENS[:130], max_tokens=1)
    other = tmp_path / "other.gguf"
    other.write_bytes(path.read_bytes())
    for file, backend in ((other, "cpu"), (path, "reference")):
        with localllm.load(file, backend=backend) as model:
            assert model.generate(TOKENS[:130], max_tokens=1).usage.cached_tokens == 0
    assert len(list(kv_folder.iterdir())) == 3


def test_a_shifted_answer_has_the_bits_of_the_shortened_text(path: Path, fresh: localllm.Model) -> None:
    with localllm.load(path, backend="cpu", ctx=80, batch=16) as model:
        prompt = TOKENS[:70]
        found = model.generate(prompt, on_full="shift", keep=5, temperature=0, max_tokens=90, ignore_eos=True)
        assert (len(found.tokens), found.finish_reason) == (90, "length")
        line, dropped = list(prompt), 0
        for token in found.tokens:
            logits = fresh.logits(line)[0]
            logits[list(model.tokenizer.eog)] = -np.inf
            assert token == logits.argmax()
            line.append(token)
            if len(line) == 80:
                del line[5:42]
                dropped += 37
        assert found.dropped_tokens == dropped == 3 * 37


def test_turns_are_dropped_from_a_conversation(path: Path, fresh: localllm.Model) -> None:
    words = ["the", "river", "was", "wide", "and", "the", "town", "beyond", "it", "was", "old"]
    messages = [{"role": role, "content": " ".join(words[n:4])} for n in range(4) for role in ("user", "assistant")][:-1]
    system = {"role": "system", "content": "be brief"}
    with localllm.load(path, backend="cpu", ctx=100) as model:
        with pytest.raises(ContextFullError, match="too many"):
            model.generate([system, *messages])
        stopped = model.generate([system, *messages], on_full="stop")
        assert (stopped.text, stopped.finish_reason) == ("", "context")
        found = model.generate([system, *messages], on_full="drop-oldest-turns", temperature=0, max_tokens=3)
        assert found.dropped_turns > 0 and found.truncated
        short = fresh.generate([system, *messages[2 * found.dropped_turns :]], temperature=0, max_tokens=3)
        assert (found.tokens, found.usage.prompt_tokens) == (short.tokens, short.usage.prompt_tokens)
        everything = fresh.generate([system, *messages], max_tokens=1).usage.prompt_tokens
        assert found.dropped_tokens == everything - short.usage.prompt_tokens


def test_several_answers_continue_one_beginning(path: Path, fresh: localllm.Model) -> None:
    with localllm.load(path, backend="cpu", cache_disk=0) as model:
        model.generate(TOKENS[:90], max_tokens=1)
        together = model.generate(TOKENS[:100], n=3, seed=2, temperature=1, max_tokens=6)
        for found in together:
            assert (found.usage.cached_tokens, found.usage.cache, found.timings.prompt_tokens) == (90, "memory", 10)
            assert found.tokens == fresh.generate(TOKENS[:100], completion=found.completion, seed=2, temperature=1, max_tokens=6).tokens
            # Each of them has come back with its own tokens.
            longer = [*TOKENS[:100], *found.tokens[:-1], 9, 9]
            again = model.generate(longer, temperature=0, max_tokens=2)
            assert again.usage.cached_tokens == 100 + len(found.tokens) - 1
            assert again.tokens == fresh.generate(longer, temperature=0, max_tokens=2).tokens


def test_several_answers_shift_each_for_itself(path: Path) -> None:
    with localllm.load(path, backend="cpu", ctx=80, cache_disk=0) as model:
        options: dict[str, Any] = {"seed": 3, "temperature": 1, "max_tokens": 60, "ignore_eos": True, "on_full": "shift"}
        together = model.generate(TOKENS[:60], n=2, **options)
        alone = [model.generate(TOKENS[:60], completion=n, **options) for n in range(2)]
        assert [found.tokens for found in together] == [found.tokens for found in alone]
        assert all(found.dropped_tokens > 0 and len(found.tokens) == 60 for found in together)


@pytest.mark.parametrize("spec", ["off", "ngram"])
def test_guessing_ahead_leaves_the_right_tokens_behind(path: Path, fresh: localllm.Model, spec: str) -> None:
    prompt = (TOKENS[:12] * 9)[:100]
    with localllm.load(path, backend="cpu", cache_disk=0) as model:
        found = model.generate(prompt, spec=spec, temperature=0, max_tokens=40, ignore_eos=True)
        assert found.tokens == fresh.generate(prompt, spec="off", temperature=0, max_tokens=40, ignore_eos=True).tokens
        longer = [*prompt, *found.tokens, 9, 9]
        with model._continued(longer) as line:
            assert line.length >= 139
            assert np.array_equal(line.feed(longer[line.length :]), fresh.logits(longer))
