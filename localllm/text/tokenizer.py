"""Text to token ids and back, as the vocabulary of a GGUF file says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from operator import index
from os import PathLike
from typing import Any, Protocol, runtime_checkable

from localllm.errors import OptionError, TokenizerError
from localllm.text.partition import Partition
from localllm.text.special import find_special
from localllm.text.stream import StreamDecoder
from localllm.text.vocab import CONTROL, UNKNOWN, Vocab, read_vocab

_SURROGATE = re.compile("[\ud800-\udfff]")


@runtime_checkable
class HasMetadata(Protocol):
    """An open GGUF file."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The file's keys and values."""


def _numbers(ids: Iterable[int]) -> list[int]:
    try:
        return [index(i) for i in ids]
    except TypeError as error:
        raise OptionError(f"the ids are {ids!r:.80}; expected whole numbers") from error


class _Model(Protocol):
    def encode(self, text: str) -> list[int]: ...
    def piece(self, id_: int) -> bytes: ...


class Tokenizer:
    """The tokenizer of a model. Ids and bytes are the same as llama.cpp's.

    ``bos``, ``eos`` and the like are ids, or None where the vocabulary has none; ``eog`` holds every id that ends an answer.
    """

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self.vocab_size = len(vocab.tokens)
        self.eog = vocab.eog
        self.add_bos = vocab.add_bos
        self.add_eos = vocab.add_eos
        self._model = _model(vocab)
        self._pieces: tuple[dict[int, bytes], dict[int, bytes]] = {}, {}  # known ones, without and with special tokens

    @classmethod
    def from_gguf(cls, file: str | PathLike[str] | HasMetadata) -> Tokenizer:
        """The tokenizer in a GGUF file, given by its path or open; files that hold nothing else will do."""
        if isinstance(file, HasMetadata):
            return cls.from_metadata(file.metadata)
        from localllm.gguf import open_gguf

        with open_gguf(file) as opened:
            return cls.from_metadata(opened.metadata)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer in a file's metadata. TokenizerError if there is none, or one that can't be used."""
        vocab = read_vocab(metadata)
        find_special(vocab)
        return cls(vocab)

    @property
    def bos(self) -> int | None:
        """Begin of sequence."""
        return self.vocab.special.get("bos")

    @property
    def eos(self) -> int | None:
        """End of sequence."""
        return self.vocab.special.get("eos")

    @property
    def eot(self) -> int | None:
        """End of turn."""
        return self.vocab.special.get("eot")

    @property
    def eom(self) -> int | None:
        """End of message."""
        return self.vocab.special.get("eom")

    @property
    def unk(self) -> int | None:
        """Unknown."""
        return self.vocab.special.get("unk")

    @property
    def sep(self) -> int | None:
        """Separator."""
        return self.vocab.special.get("sep")

    @property
    def pad(self) -> int | None:
        """Padding."""
        return self.vocab.special.get("pad")

    @property
    def mask(self) -> int | None:
        """Mask."""
        return self.vocab.special.get("mask")

    @property
    def fim_pre(self) -> int | None:
        """Fill in the middle: what stands before follows."""
        return self.vocab.special.get("fim_pre")

    @property
    def fim_suf(self) -> int | None:
        """Fill in the middle: what stands behind follows."""
        return self.vocab.special.get("fim_suf")

    @property
    def fim_mid(self) -> int | None:
        """Fill in the middle: the answer begins."""
        return self.vocab.special.get("fim_mid")

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The ids of a text.

        ``add_special`` puts BOS, EOS and the like around it where the file says so. ``parse_special`` reads the texts of
        control tokens as these tokens; without it they are text like any other, which is what text from outside must be. A BOS
        that the text spells out comes behind the added one, as in llama.cpp; chats, whose templates spell it, get one.
        """
        if not isinstance(text, str):
            raise OptionError(f"the text is {text!r:.80}; expected a string")
        fragments = self._partition.split(_SURROGATE.sub("\ufffd", text), parse_special)
        ids: list[int] = []
        special_before = True
        for fragment in fragments:
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                spaced = self.vocab.kind.name == "spm" and self.vocab.add_space_prefix and special_before
                ids += self._model.encode(f" {fragment}" if spaced else fragment)
            special_before = isinstance(fragment, int)
        return self._framed(ids) if add_special else ids

    def decode(self, ids: Iterable[int], special: bool = False) -> bytes:
        """The bytes of a whole text, ``special`` with the texts of control tokens.

        Undoes what ``encode`` did to spaces, and for old vocabularies cleans up those before punctuation, as llama.cpp does.
        A text that is still being written is what ``stream`` is for: it shows each piece as it is.
        """
        pieces = [self.piece(i, special) for i in _numbers(ids)]
        if pieces and self.vocab.add_space_prefix:
            pieces[0] = pieces[0].removeprefix(b" ")
        joined = b"".join(pieces)
        return _clean_spaces(joined) if self.vocab.clean_spaces else joined

    def piece(self, id_: int, special: bool = False) -> bytes:
        """The bytes of one token; nothing for a control token unless ``special``. TokenizerError if there is no such id."""
        found = self._pieces[special].get(id_)
        if found is None:
            hidden = self._is(id_, CONTROL | UNKNOWN) and not special
            found = self._pieces[special][id_] = b"" if hidden else self._model.piece(id_)
        return found

    def pieces(self) -> Iterator[bytes]:
        """The bytes of every token, those of control tokens too; nothing is kept of them."""
        return map(self._model.piece, range(self.vocab_size))

    def is_control(self, id_: int) -> bool:
        """Whether the token steers the model and is no text. TokenizerError if there is no such id."""
        return self._is(id_, CONTROL)

    def stream(self, special: bool = False) -> StreamDecoder:
        """A decoder for ids that come one by one."""
        return StreamDecoder(partial(self.piece, special=special))

    def _is(self, id_: int, bits: int) -> bool:
        if not 0 <= id_ < self.vocab_size:
            raise TokenizerError(f"token {id_}: the vocabulary has the ids 0 to {self.vocab_size - 1}")
        return self.vocab.attr.item(id_) & bits != 0

    def _framed(self, ids: list[int]) -> list[int]:
        kind, special = self.vocab.kind.name, self.vocab.special
        if kind == "rwkv":
            return ids
        front = [special["bos"]] if self.add_bos or kind == "wpm" else []
        if kind == "wpm":
            return [*front, *ids, special["sep"]]
        return [*front, *ids, special["eos"]] if self.add_eos else [*front, *ids]

    @cached_property
    def _partition(self) -> Partition:
        return Partition(self.vocab)


def _model(vocab: Vocab) -> _Model:
    match vocab.kind.name:
        case "bpe":
            from localllm.text.bpe import BPE

            return BPE(vocab)
        case "spm":
            from localllm.text.spm import SPM

            return SPM(vocab)
        case "wpm":
            from localllm.text.wpm import WPM

            return WPM(vocab)
        case "ugm":
            from localllm.text.ugm import UGM

            return UGM(vocab)
        case _:
            from localllm.text.rwkv import RWKV

            return RWKV(vocab)


def _clean_spaces(text: bytes) -> bytes:
    """Without the space before ``? ! . ,``, the two around a lone apostrophe, and the one before ``'s 'm 're 've``."""
    text = re.sub(rb" (?=[?!.,])", b"", text)
    return re.sub(rb" (?='(?:[sm]|re|ve))", b"", text.replace(b" ' ", b"'"))
