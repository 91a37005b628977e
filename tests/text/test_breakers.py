from __future__ import annotations

import pytest

from localllm.text import Tokenizer
from localllm.text.breakers import LONGEST, breakers
from tests import tiny_vocabulary


@pytest.fixture(scope="module", params=["spm", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.from_metadata(tiny_vocabulary.keys(request.param))


def test_a_token_that_holds_a_breaker(tokenizer: Tokenizer) -> None:
    found = breakers(tokenizer, ["\n", "a"])
    pieces = [tokenizer.piece(n, special=True) for n in range(tokenizer.vocab_size)]
    assert found == {n: ((),) for n, piece in enumerate(pieces) if b"\n" in piece or b"a" in piece}
    assert len(found) > 5  # "was" and "that" among them


def test_a_token_in_which_a_breaker_begins(tokenizer: Tokenizer) -> None:
    found = breakers(tokenizer, ["t\nq"])
    assert found
    for token, tails in found.items():
        piece = tokenizer.piece(token, special=True)
        for tail in tails:
            whole = piece + b"".join(tokenizer.piece(each, special=True) for each in tail)
            assert piece.endswith((b"t", b"t\n")) and b"t\nq" in whole.replace(b" ", b"")
    assert {n for n in range(tokenizer.vocab_size) if tokenizer.piece(n, special=True).endswith(b"t")} <= set(found)


def test_several_ways_and_none(tokenizer: Tokenizer) -> None:
    # "aa" of "aaab" may be the first two or the last two before the b.
    (token,) = tokenizer.encode("a", add_special=False)[-1:]
    (b,) = tokenizer.encode("b", add_special=False)[-1:]
    tails = breakers(tokenizer, ["ab", "aq"])[token]
    assert len(tails) == 2 and any(tail[-1] == b for tail in tails)
    assert breakers(tokenizer, []) == {}


def test_long_breakers_are_cut(tokenizer: Tokenizer) -> None:
    assert breakers(tokenizer, ["x" * LONGEST + "y"]) == breakers(tokenizer, ["x" * LONGEST])
    assert all(len(tail) <= 20 for tails in breakers(tokenizer, ["x" * LONGEST]).values() for tail in tails)
