"""A radix tree: values under sequences of tokens, found by how their keys begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

V = TypeVar("V")
Tokens = NDArray[np.int32]


def array(tokens: Sequence[int]) -> Tokens:
    """Tokens as the tree compares them."""
    return np.asarray(tokens, np.int32)


def common(a: Tokens, b: Tokens) -> int:
    """How many tokens two sequences have in common at their beginnings."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n


class _Node(Generic[V]):
    """``edge``: the tokens between the parent and here. No node but the root is without a value and has less than two children."""

    __slots__ = ("children", "edge", "values")

    def __init__(self, edge: Tokens) -> None:
        self.edge = edge
        self.children: dict[int, _Node[V]] = {}
        self.values: list[V] = []  # one or none


class Radix(Generic[V]):
    """Values by key. A walk costs the length of the key, however many keys there are."""

    def __init__(self) -> None:
        self._root: _Node[V] = _Node(array(()))

    def put(self, key: Tokens, value: V) -> None:
        """Keep a value under a key, in the place of another one."""
        node, at = self._root, 0
        while at < len(key):
            child = node.children.get(int(key[at]))
            if child is None:
                child = _Node(key[at:].copy())
                child.values = [value]  # before the tree has it: no walk finds an empty leaf
                node.children[int(key[at])] = child
                return
            n = common(child.edge, key[at:])
            node, at = child if n == len(child.edge) else _split(node, child, n), at + n
        node.values = [value]

    def pop(self, key: Tokens) -> None:
        """Forget the value of a key. Harmless where there is none."""
        path = [self._root]
        for node in self._down(key):
            path.append(node)
        if sum(len(node.edge) for node in path) != len(key):
            return
        path[-1].values = []
        for parent, node in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
            _tidy(parent, node)

    def common(self, key: Tokens) -> int:
        """The length of the longest beginning that ``key`` has in common with any key of the tree."""
        at, node = 0, self._root
        for node in self._down(key):
            at += len(node.edge)
        beyond = node.children.get(int(key[at])) if at < len(key) else None
        return at if beyond is None else at + common(beyond.edge, key[at:])

    def above(self, key: Tokens) -> list[V]:
        """Values whose keys ``key`` begins with, the longest first, its own included."""
        return [value for node in reversed([self._root, *self._down(key)]) for value in node.values]

    def below(self, key: Tokens) -> Iterator[V]:
        """Values whose keys begin with ``key``, its own included."""
        at, node = 0, self._root
        for node in self._down(key):
            at += len(node.edge)
        if at < len(key):
            beyond = node.children.get(int(key[at]))
            if beyond is None or common(beyond.edge, key[at:]) < len(key) - at:
                return
            node = beyond
        waiting = [node]
        while waiting:
            node = waiting.pop()
            yield from node.values
            waiting += node.children.values()

    def _down(self, key: Tokens) -> Iterator[_Node[V]]:
        """The nodes whose edges are parts of the key, from the root's child on."""
        node, at = self._root, 0
        while at < len(key):
            child = node.children.get(int(key[at]))
            if child is None or common(child.edge, key[at:]) < len(child.edge):
                return
            node, at = child, at + len(child.edge)
            yield node


def _split(parent: _Node[V], child: _Node[V], n: int) -> _Node[V]:
    """A new node after the first ``n`` tokens of an edge."""
    middle: _Node[V] = _Node(child.edge[:n].copy())
    middle.children[int(child.edge[n])] = child
    parent.children[int(child.edge[0])] = middle
    child.edge = child.edge[n:].copy()
    return middle


def _tidy(parent: _Node[V], node: _Node[V]) -> None:
    """Take a node out that has become useless: it holds nothing, and joins less than two others."""
    if node.values or len(node.children) > 1:
        return
    first = int(node.edge[0])
    if not node.children:
        del parent.children[first]
        return
    (child,) = node.children.values()
    child.edge = np.concatenate([node.edge, child.edge])
    parent.children[first] = child
