"""A session and a tokenizer without a model: whatever the engine does, these tell exactly what must come of it."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from localllm.backends.base import Chunk, Float, Line, Outputs, likeliest
from localllm.backends.saved import Source, Target
from localllm.generation.stepper import Stepper

BOS, END, USER, BOT = 256, 257, 258, 259
SPECIAL = {"<s>": BOS, "<|end|>": END, "<|user|>": USER, "<|bot|>": BOT}
VOCAB = 260

Rule = Callable[[Sequence[int]], Float]


def noise(line: Sequence[int], size: int = VOCAB) -> Float:
    """Logits that depend on every token of the line and on their order."""
    return np.random.default_rng(zlib.crc32(np.array(line, np.int64).tobytes())).standard_normal(size).astype(np.float32)


def saying(text: str | bytes, end: int = END) -> Rule:
    """Logits of a model that says this text after any prompt that ends with BOT, and then ``end``."""
    answer = [*(text.encode() if isinstance(text, str) else text), end]

    def rule(line: Sequence[int]) -> Float:
        said = len(line) - 1 - max((n for n, token in enumerate(line) if token == BOT), default=-1)
        logits = noise(line)
        logits[answer[said % len(answer)]] = 1000
        return logits

    return rule


class FakeLine:
    """A list of tokens."""

    def __init__(self, session: FakeSession, tokens: Sequence[int] = ()) -> None:
        self.tokens, self._session = list(tokens), session
        session.lines.append(self)

    @property
    def length(self) -> int:
        return len(self.tokens)

    def truncate(self, n: int) -> int:
        del self.tokens[n:]
        return len(self.tokens)

    def checkpoint(self) -> None:
        pass

    def save(self, file: Target) -> None:
        file.write(memoryview(np.array(self.tokens, np.int64).tobytes()))

    def fork(self) -> Line:
        return FakeLine(self._session, self.tokens)

    def close(self) -> None:
        assert not self._session.closed
        self._session.lines.remove(self)


class FakeSession:
    """Computes ``rule(tokens so far)`` for every row that is wanted. ``chunks``: the length of each batch; ``lines``: the open ones."""

    def __init__(self, rule: Rule = noise, batch: int = 512) -> None:
        self.rule, self.batch = rule, batch
        self.chunks: list[int] = []
        self.rows: list[int] = []
        self.lines: list[FakeLine] = []
        self.closed = False
        self.threads = 1

    def profile(self) -> AbstractContextManager[dict[str, float]]:
        return nullcontext({})

    def new_line(self) -> Line:
        return FakeLine(self)

    @property
    def fingerprint(self) -> str:
        return "fake"

    def restore(self, file: Source) -> Line:
        return FakeLine(self, np.frombuffer(file.read(1 << 30), np.int64).tolist())

    def forward(self, batch: Sequence[Chunk]) -> Outputs:
        assert not self.closed
        assert sum(len(chunk.tokens) for chunk in batch) <= self.batch
        found = [(chunk.want.likeliest, self._one(chunk)) for chunk in batch]
        return Outputs(
            [rows[:0] if k else rows for k, rows in found], [[likeliest(row, k) for row in rows] if k else [] for k, rows in found]
        )

    def close(self) -> None:
        assert not self.lines
        self.closed = True

    def _one(self, chunk: Chunk) -> Float:
        line = chunk.line
        assert isinstance(line, FakeLine)
        start = len(line.tokens)
        line.tokens += chunk.tokens
        self.chunks.append(len(chunk.tokens))
        self.rows.append(len(chunk.want.rows))
        rows = [self.rule(line.tokens[: start + row + 1]) for row in chunk.want.rows]
        return np.array(rows, np.float32).reshape(len(rows), VOCAB)


class FakeDecoder:
    """Bytes to characters; specials are not shown."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int, /) -> str:
        return self._utf8.decode(bytes([token])) if token < 256 else ""

    def flush(self) -> str:
        return self._utf8.decode(b"", True)


class FakeTokenizer:
    """One token a byte, and four specials."""

    def __init__(self, *, bos: bool = False) -> None:
        self._bos = bos
        self.eog = frozenset({END})

    def encode(self, text: str, /, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        pieces = re.split(f"({'|'.join(map(re.escape, SPECIAL))})", text) if parse_special else [text]
        ids = [token for piece in pieces for token in ([SPECIAL[piece]] if parse_special and piece in SPECIAL else piece.encode())]
        return [BOS, *ids] if self._bos and add_special else ids

    def decode(self, ids: Sequence[int], /, *, special: bool = False) -> bytes:
        names = {token: text.encode() for text, token in SPECIAL.items()} if special else {}
        return b"".join(bytes([token]) if token < 256 else names.get(token, b"") for token in ids)

    def stream(self) -> FakeDecoder:
        return FakeDecoder()


class FakeTemplate:
    """<|user|>content<|bot|>, the content trimmed as real templates do."""

    def __init__(self, *, bos: bool = False) -> None:
        self._bos = bos

    def render(self, messages: Sequence[dict[str, str]], /, *, add_generation_prompt: bool = True) -> str:
        turns = "".join(f"<|{message['role']}|>{message['content'].strip()}" for message in messages)
        return ("<s>" if self._bos else "") + turns + ("<|bot|>" if add_generation_prompt else "")


def stepper(session: FakeSession, context: int = 4096) -> Stepper:
    """A line of the session."""
    return Stepper(session, vocab=VOCAB, context=context, batch=session.batch)
