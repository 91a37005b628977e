"""Text from tokens as they come: whole characters only."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Turns ids into text one by one: a character is given out once all its bytes are there, and none is lost.

    Bytes that are no UTF-8 become U+FFFD, as soon as no further byte could make a character of them.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._whole = True

    def push(self, id_: int) -> str:
        """The text that this id completes; "" while a character is unfinished."""
        piece = self._piece(id_)
        if self._whole and piece.isascii():
            return piece.decode("ascii")
        text = self._decoder.decode(piece)
        self._whole = not self._decoder.getstate()[0]
        return text

    def flush(self) -> str:
        """What is left: U+FFFD for a character that was never finished, else "". The decoder is as new after it."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._whole = True
        return text
