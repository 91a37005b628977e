"""Special tokens cut text into fragments before the tokenizer proper sees it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from localllm.text.vocab import CONTROL, LSTRIP, RSTRIP, UNKNOWN, USER_DEFINED, Vocab

_SPACE = " \t\n\v\f\r"
_STEP, _FEW = 3, 8


class _Special(NamedTuple):
    order: int
    text: str
    id: int
    attr: int


class _Cut(NamedTuple):
    """A stretch of text that a token takes, with the white space that it swallows."""

    start: int
    end: int
    id: int


class Partition:
    """The special tokens of a vocabulary, and the cutting of texts at them."""

    def __init__(self, vocab: Vocab) -> None:
        ids = sorted(vocab.with_attr(CONTROL | USER_DEFINED | UNKNOWN), key=lambda i: -len(vocab.tokens[i]))
        attr = vocab.attr.tolist()
        texts = [vocab.tokens[i].decode("utf-8", "surrogateescape") for i in ids]
        self._root = _Prefix([_Special(order, text, i, attr[i]) for order, (i, text) in enumerate(zip(ids, texts, strict=True))])

    def split(self, text: str, parse_special: bool) -> list[str | int]:
        """The text as fragments (str, none empty) and the ids of special tokens between them.

        Longer tokens are cut out first, whatever stands to their left. User-defined tokens are always tokens; control and
        unknown ones only where ``parse_special`` says so, so that text from outside can't pass for one.
        """
        hidden = 0 if parse_special else CONTROL | UNKNOWN
        present = sorted(special for special in self._root.present(text) if not special.attr & hidden)
        if not present:
            return [text] if text else []
        return list(_fragments(text, _cuts(text, present)))


class _Prefix:
    """Tokens that begin alike, in groups by more letters: a text is searched for few prefixes instead of thousands of tokens."""

    def __init__(self, specials: list[_Special], depth: int = 0) -> None:
        size = max(_STEP, 2 * depth)
        groups: defaultdict[str, list[_Special]] = defaultdict(list)
        for special in specials:
            groups[special.text[:size]].append(special)
        many = [prefix for prefix, group in groups.items() if len(group) > _FEW and len(prefix) == size]
        self._many = {prefix: _Prefix(groups.pop(prefix), size) for prefix in many}
        self._few = groups

    def present(self, text: str) -> Iterator[_Special]:
        """The tokens that occur in the text, in no order."""
        for prefix, group in self._few.items():
            if prefix in text:
                yield from (special for special in group if special.text in text)
        for prefix, deeper in self._many.items():
            if prefix in text:
                yield from deeper.present(text)


def _cuts(text: str, specials: Iterable[_Special]) -> list[_Cut]:
    """Where the tokens stand, those that come first in ``specials`` first served; sorted by place."""
    taken = bytearray(len(text))
    cuts: list[_Cut] = []
    for special in specials:
        size = len(special.text)
        at = text.find(special.text)
        while at >= 0:
            blocked = taken.rfind(1, at, at + size)
            if blocked < 0:
                cuts.append(_widened(text, taken, special, at))
                start, end, _ = cuts[-1]
                taken[start:end] = b"\1" * (end - start)
            at = text.find(special.text, at + size if blocked < 0 else blocked + 1)
    return sorted(cuts)


def _widened(text: str, taken: bytearray, special: _Special, at: int) -> _Cut:
    start, end = at, at + len(special.text)
    while special.attr & LSTRIP and start > 0 and text[start - 1] in _SPACE and not taken[start - 1]:
        start -= 1
    while special.attr & RSTRIP and end < len(text) and text[end] in _SPACE and not taken[end]:
        end += 1
    return _Cut(start, end, special.id)


def _fragments(text: str, cuts: list[_Cut]) -> Iterator[str | int]:
    start = 0
    for cut in cuts:
        if start < cut.start:
            yield text[start : cut.start]
        yield cut.id
        start = cut.end
    if start < len(text):
        yield text[start:]
