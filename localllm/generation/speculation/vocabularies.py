"""Whether one model can guess for another: which tokens are the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localllm.backends.base import Float
from localllm.errors import OptionError
from localllm.text.vocab import NORMAL, Vocab

_ROLES = ("bos", "eos", "eot", "eom", "unk", "pad")


class Bridge:
    """Ids of the model that is guessed for (the target) and ids of the draft.

    ``size``, ``draft_size``: logits of either; ``moved``: ids of the target that are others in the draft, or None where the draft has
    none; all others are the same. ``stranger``: the draft's id that stands for what it does not have.
    """

    def __init__(self, size: int, draft_size: int, moved: dict[int, int | None], stranger: int = 0) -> None:
        self._size, self._draft_size, self._moved, self._stranger = size, draft_size, moved, stranger
        self._there = [(token, other) for token, other in moved.items() if other is not None]
        self._missing = [token for token, other in moved.items() if other is None]

    @property
    def same(self) -> bool:
        """Whether all ids are the same in both."""
        return not self._moved and self._size == self._draft_size

    def to_draft(self, tokens: Sequence[int]) -> list[int]:
        """The same text in the draft's ids."""
        if not self._moved:
            return list(tokens)
        found = (self._moved.get(token, token) for token in tokens)
        return [self._stranger if token is None else token for token in found]

    def to_target(self, logits: Float) -> Float:
        """The draft's logits (V of the draft,) by the target's ids (V,)."""
        if self.same:
            return logits
        row = np.full(self._size, -np.inf, np.float32)
        common = min(self._size, len(logits))
        row[:common] = logits[:common]
        row[self._missing] = -np.inf
        for token, other in self._there:
            row[token] = logits[other]
        return row


def bridge(target: Vocab, draft: Vocab, size: int, draft_size: int) -> Bridge:
    """The way between two vocabularies that are identical, padded, or differ in special tokens only. ``size``, ``draft_size``: logits of
    either.

    Raises OptionError where a token of ordinary text differs.
    """
    common = min(len(target.tokens), len(draft.tokens))
    differing = [] if target.tokens[:common] == draft.tokens[:common] else _differing(target, draft, common)
    beyond = range(common, max(len(target.tokens), len(draft.tokens)))
    for token in (*differing, *beyond):
        _require_special(target, draft, token)
    moved = {token: _counterpart(target, draft, token) for token in (*differing, *range(common, size))}
    return Bridge(size, draft_size, moved, draft.special.get("unk", draft.special.get("eos", 0)))


def _differing(target: Vocab, draft: Vocab, common: int) -> list[int]:
    return [n for n in range(common) if target.tokens[n] != draft.tokens[n]]


def _require_special(target: Vocab, draft: Vocab, token: int) -> None:
    for vocab in (target, draft):
        if token < len(vocab.tokens) and vocab.attr[token] & NORMAL:
            theirs, ours = (_shown(each, token) for each in (draft, target))
            raise OptionError(
                f"option 'draft': token {token} is {theirs} in the draft and {ours} in the model, so one can't guess for the other; "
                "expected a draft with the same vocabulary: take a smaller model of the same family"
            )


def _shown(vocab: Vocab, token: int) -> str:
    return repr(vocab.tokens[token].decode("utf-8", "replace")) if token < len(vocab.tokens) else "missing"


def _counterpart(target: Vocab, draft: Vocab, token: int) -> int | None:
    """The draft's id of a special token: the same text, or else the same role."""
    if token >= len(target.tokens):
        return None
    same = draft.ids.get(target.tokens[token])
    if same is not None:
        return same
    role = next((role for role in _ROLES if target.special.get(role) == token), None)
    return draft.special.get(role) if role else None
