from __future__ import annotations

import random

import pytest

from localllm.generation.radix import Radix, Tokens, array, common


def test_the_common_beginning() -> None:
    assert common(array([1, 2, 3]), array([1, 2, 4, 5])) == 2
    assert common(array([1, 2]), array([1, 2, 4])) == 2
    assert common(array([]), array([1])) == 0


def tree(*keys: str) -> Radix[str]:
    made: Radix[str] = Radix()
    for key in keys:
        made.put(ids(key), key)
    return made


def ids(text: str) -> Tokens:
    return array(list(text.encode()))


@pytest.mark.parametrize(
    ("key", "n", "above", "below"),
    [
        ("", 0, [], ["a", "abc", "abd", "x"]),
        ("a", 1, ["a"], ["a", "abc", "abd"]),
        ("ab", 2, ["a"], ["abc", "abd"]),
        ("abc", 3, ["abc", "a"], ["abc"]),
        ("abcd", 3, ["abc", "a"], []),
        ("abx", 2, ["a"], []),
        ("y", 0, [], []),
    ],
)
def test_values_are_found_by_how_their_keys_begin(key: str, n: int, above: list[str], below: list[str]) -> None:
    found = tree("abc", "a", "abd", "x")
    assert found.common(ids(key)) == n
    assert found.above(ids(key)) == above
    assert sorted(found.below(ids(key))) == below


def test_the_empty_key_is_a_key() -> None:
    found = tree("", "b")
    assert found.above(ids("b")) == ["b", ""]
    found.pop(ids(""))
    assert found.above(ids("b")) == ["b"]


def test_a_key_has_one_value() -> None:
    found = tree("ab")
    found.put(ids("ab"), "new")
    assert list(found.below(ids("a"))) == ["new"]


def test_it_does_what_a_dictionary_would_do() -> None:
    rng = random.Random(1)
    found, known = Radix[str](), dict[str, str]()
    for _ in range(3000):
        key = "".join(rng.choices("ab", k=rng.randrange(7)))
        if rng.random() < 0.55:
            found.put(ids(key), key)
            known[key] = key
        else:
            found.pop(ids(key))
            known.pop(key, None)
        probe = "".join(rng.choices("ab", k=rng.randrange(7)))
        assert found.above(ids(probe)) == sorted((k for k in known if probe.startswith(k)), key=len, reverse=True)
        assert sorted(found.below(ids(probe))) == sorted(k for k in known if k.startswith(probe))
        n = max((sum(1 for _ in _same(k, probe)) for k in known), default=0)
        assert found.common(ids(probe)) == n
    for key in list(known):
        found.pop(ids(key))
    assert not found._root.children and not found._root.values


def _same(a: str, b: str) -> list[str]:
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return list(a[:n])
