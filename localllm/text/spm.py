r"""SentencePiece's BPE (GGUF ``llama``) through the ``sentencepiece`` package.

llama.cpp merges the pair of neighbours whose union has the highest score, leftmost first, and takes any token for a union,
whatever its type. The library does the same for tokens of type NORMAL, so each token becomes one in the model that is
built here (only bytes keep theirs), and cutting out the special ones is done before.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from localllm.errors import TokenizerError
from localllm.text.bpe import byte_value
from localllm.text.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

SPACE = "\u2581"
_TYPE_UNKNOWN, _TYPE_CONTROL, _TYPE_BYTE = 2, 3, 6
_NOTHING = "\ufdd0"  # not a character, so no text holds it


class SPM:
    """The SPM of one vocabulary: ``encode`` for text without special tokens, ``piece`` for the bytes of a token."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab

    def encode(self, text: str) -> list[int]:
        """The ids of a text; what is no token is written in bytes."""
        if self._has_all_bytes:
            return cast("list[int]", self._processor.encode(text, out_type=int))
        pieces = self._processor.encode(text, out_type=str)
        return [i for piece in pieces for i in self._ids_of(piece.encode())]

    def piece(self, id_: int) -> bytes:
        """The bytes of a token that is not special."""
        return unescaped_piece(self._vocab, id_)

    @cached_property
    def _byte_ids(self) -> list[int | None]:
        ids = self._vocab.ids
        return [ids.get(b"<0x%02X>" % b, ids.get(bytes([b]))) for b in range(256)]

    @cached_property
    def _has_all_bytes(self) -> bool:
        return all(b"<0x%02X>" % b in self._vocab.ids for b in range(256))

    def _ids_of(self, piece: bytes) -> list[int]:
        known = self._vocab.ids.get(piece)
        if known is not None:
            return [known]
        bytes_ = [self._byte_ids[b] for b in piece]
        return [i for i in bytes_ if i is not None] or [self._vocab.special.get("unk", 0)]

    @cached_property
    def _processor(self) -> SentencePieceProcessor:
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(self._proto())
        except Exception as error:  # the package raises RuntimeError or an error of its own
            raise TokenizerError(f"the vocabulary can't be loaded by sentencepiece: {error}") from None
        return processor

    def _proto(self) -> bytes:
        """A sentencepiece ModelProto: the pieces (field 1), trainer (2) and normalizer (3) settings.

        The library wants one unknown piece: it gets one behind the vocabulary, which no text can spell.
        """
        vocab = self._vocab
        count = len(vocab.tokens)
        pieces = _pieces(vocab.tokens, vocab.scores)
        for i in [i for i, raw in enumerate(vocab.tokens) if b"\0" in raw]:  # refused by the library
            pieces[i] = _piece(f"{_NOTHING}{i}".encode(), 0.0, _TYPE_CONTROL)
        if self._has_all_bytes:
            for b in range(256):
                i = vocab.ids[b"<0x%02X>" % b]
                pieces[i] = _piece(vocab.tokens[i], float(vocab.scores[i]), _TYPE_BYTE)
        pieces.append(_piece(_NOTHING.encode(), 0.0, _TYPE_UNKNOWN))
        none = (1 << 64) - 1  # -1 as a varint
        trainer = b"".join(
            _number(number, value) for number, value in ((3, 2), (35, self._has_all_bytes), (40, count), (41, none), (42, none), (43, none))
        )
        normalizer = _block(1, b"identity") + _number(3, 0) + _number(4, 0) + _number(5, 1)
        return b"".join(pieces) + _block(2, trainer) + _block(3, normalizer)


def unescaped_piece(vocab: Vocab, id_: int) -> bytes:
    """The bytes of a token in the vocabularies that write U+2581 for the space and ``<0xNN>`` for bytes."""
    raw, attr = vocab.tokens[id_], int(vocab.attr[id_])
    if attr & (CONTROL | UNKNOWN | USER_DEFINED):
        return raw
    if attr & NORMAL:
        return raw.replace(SPACE.encode(), b" ")
    return byte_value(raw) if attr & BYTE else b""


def _pieces(tokens: list[bytes], scores: np.ndarray) -> list[bytes]:
    """Each token as a serialised piece of type NORMAL; without a Python call per token, since there may be 262,144."""
    lengths = list(map(len, tokens))
    heads = {n: _block(1, b"", n + len(_varint(n)) + 6) + _block(1, b"", n) for n in set(lengths)}
    tails = np.zeros((len(tokens), 5), np.uint8)
    tails[:, 0] = 2 << 3 | 5
    tails[:, 1:] = scores.astype("<f4").view(np.uint8).reshape(-1, 4)
    return [heads[n] + raw + tail for n, raw, tail in zip(lengths, tokens, tails.view("V5").ravel().tolist(), strict=True)]


def _piece(raw: bytes, score: float, type_: int) -> bytes:
    return _block(1, _block(1, raw) + struct.pack("<Bf", 2 << 3 | 5, score) + _number(3, type_))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _block(field: int, payload: bytes, size: int | None = None) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(payload) if size is None else size) + payload
