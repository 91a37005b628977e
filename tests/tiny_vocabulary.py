"""Two small vocabularies that work: an spm ``llama`` one with byte tokens, and a byte-level BPE ``gpt2`` one.

Their pieces are trained on TEXT, so that ordinary English gives tokens of several letters and everything else falls back to bytes.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any, Literal

TEXT = (
    "The answer is the one that the reader was looking for and the river was there in the morning. "
    "An old engine on the other side of the water started to run, and then all of the birds in the trees were still. "
    "What is there to say in the evening when the lights are on and the town is near? "
    "She said that it was not the first time, and that she had seen the same thing in the winter."
)
PIECES = 80
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Token types of GGUF."""


def keys(kind: Literal["spm", "bpe"]) -> dict[str, Any]:
    """The tokenizer.* metadata."""
    return spm() if kind == "spm" else bpe()


def spm() -> dict[str, Any]:
    """SentencePiece BPE: specials, 256 bytes, trained pieces by rising rank, printable ASCII."""
    pieces = ["".join(pair) for pair in merges("\u2581")]
    letters = ["\u2581", *map(chr, range(33, 127))]
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    raw = [f"<0x{byte:02X}>" for byte in range(256)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*special, *raw, *pieces, *letters],
        "tokenizer.ggml.scores": [0.0] * 261
        + [-float(rank) for rank in range(len(pieces))]
        + [-1000.0 - rank for rank in range(len(letters))],
        "tokenizer.ggml.token_type": [UNKNOWN] + [CONTROL] * 4 + [BYTE] * 256 + [NORMAL] * (len(pieces) + len(letters)),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.chat_template": TEMPLATE,
    }


def bpe() -> dict[str, Any]:
    """Byte-level BPE as GPT-2 writes it: 256 byte letters, trained pieces, specials."""
    pairs = merges("\u0120")
    pieces = ["".join(pair) for pair in pairs]
    tokens = [*byte_letters().values(), *pieces, "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NORMAL] * (256 + len(pieces)) + [CONTROL] * 3,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in pairs],
        "tokenizer.ggml.bos_token_id": len(tokens) - 3,
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


@cache
def merges(space: str) -> tuple[tuple[str, str], ...]:
    """Byte pair encoding trained on TEXT: the most frequent pair first, the smaller one on ties. ``space`` opens a word."""
    words = [[space, *word] for word in TEXT.split()]
    found = []
    for _ in range(PIECES):
        pairs = Counter(pair for word in words for pair in pairwise(word))
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        found.append(best)
        words = [_merge(word, best) for word in words]
    return tuple(found)


def _merge(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for piece in word:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def byte_letters() -> dict[int, str]:
    """GPT-2's printable letter of every byte: itself where it is one, else the next unused above 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + rank) for rank, byte in enumerate(others)}
