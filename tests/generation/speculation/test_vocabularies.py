from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localllm.errors import OptionError
from localllm.generation.speculation.vocabularies import bridge
from localllm.text.vocab import Vocab, read_vocab
from tests import tiny_vocabulary


def vocab(**changes: Any) -> Vocab:
    return read_vocab({**tiny_vocabulary.bpe(), **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}})


TOKENS: list[str] = tiny_vocabulary.bpe()["tokenizer.ggml.tokens"]
TYPES: list[int] = tiny_vocabulary.bpe()["tokenizer.ggml.token_type"]
N = len(TOKENS)
CONTROL, UNUSED = 3, 5


def padded(count: int) -> Vocab:
    return vocab(tokens=[*TOKENS, *(f"[PAD{n}]" for n in range(count))], token_type=[*TYPES, *[UNUSED] * count])


def row(values: Sequence[float]) -> Any:
    return np.array(values, np.float32)


def test_identical_vocabularies_need_nothing() -> None:
    same = bridge(vocab(), vocab(), N, N)
    logits = np.arange(N, dtype=np.float32)
    assert same.same
    assert same.to_target(logits) is logits
    assert same.to_draft([1, 2, N - 1]) == [1, 2, N - 1]


@pytest.mark.parametrize(("ours", "theirs"), [(0, 5), (5, 0), (3, 7)])
def test_padding_is_no_difference(ours: int, theirs: int) -> None:
    found = bridge(padded(ours), padded(theirs), N + ours, N + theirs)
    logits = np.arange(N + theirs, dtype=np.float32)
    made = found.to_target(logits)
    assert len(made) == N + ours
    np.testing.assert_array_equal(made[:N], logits[:N])
    assert int(made.argmax()) < N + min(ours, theirs)
    assert max(found.to_draft(range(N + ours))) < N + theirs


def test_logits_without_a_token_are_impossible() -> None:
    found = bridge(vocab(), vocab(), N + 4, N)
    made = found.to_target(np.zeros(N, np.float32))
    assert list(made[N:]) == [-np.inf] * 4


def test_special_tokens_that_stand_elsewhere_are_found() -> None:
    a, b = N - 2, N - 1
    swapped = [*TOKENS[:a], TOKENS[b], TOKENS[a]]
    found = bridge(vocab(), vocab(tokens=swapped), N, N)
    assert found.to_draft([0, a, b]) == [0, b, a]
    logits = np.arange(N, dtype=np.float32)
    made = found.to_target(logits)
    assert (made[a], made[b]) == (b, a)
    assert list(logits) == list(range(N))


def test_special_tokens_of_one_role_stand_for_each_other() -> None:
    eos = vocab().special["eos"]
    other = [*TOKENS]
    other[eos] = "<|the_end|>"
    found = bridge(vocab(), vocab(tokens=other), N, N)
    assert found.to_draft([eos]) == [eos]


def test_another_special_token_is_nothing() -> None:
    other = [*TOKENS]
    other[N - 2] = "<|something|>"
    found = bridge(vocab(), vocab(tokens=other), N, N)
    made = found.to_target(np.zeros(N, np.float32))
    assert made[N - 2] == -np.inf and np.isfinite(np.delete(made, N - 2)).all()
    assert found.to_draft([N - 2]) != [N - 2]


@pytest.mark.parametrize("change", ["word", "order", "more"])
def test_another_vocabulary_is_refused_with_the_first_difference(change: str) -> None:
    other, types = [*TOKENS], [*TYPES]
    if change == "word":
        other[300] = "unheard"
    elif change == "order":
        other[280:283] = reversed(other[280:283])
    else:
        other, types = [*TOKENS, "unheard"], [*TYPES, 1]
    where = {"word": 300, "order": 280, "more": N}[change]
    with pytest.raises(OptionError, match=rf"'draft': token {where} is .* in the draft and .* in the model.*same family"):
        bridge(vocab(), vocab(tokens=other, token_type=types), N, N)
