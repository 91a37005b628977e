"""Text that must not command the terminal."""

from __future__ import annotations

import unicodedata

import pytest

from localllm.chat.terminal import clean, line


def test_no_control_character_is_left() -> None:
    everything = "".join(map(chr, range(0x300))) + "".join(map(chr, range(0x2000, 0x2100)))
    assert [c for c in clean(everything) if unicodedata.category(c) == "Cc"] == ["\t", "\n"]
    assert not [c for c in line(everything) if unicodedata.category(c) in ("Cc", "Zl", "Zp")]


@pytest.mark.parametrize(
    ("text", "cleaned", "one_line"),
    [
        ("Grüße 🙂 שלום", "Grüße 🙂 שלום", "Grüße 🙂 שלום"),
        ("a\r\nb\tc", "a\nb\tc", "a\u240d\u240ab\u2409c"),
        ("\x1b]0;title\x07", "\u241b]0;title\u2407", "\u241b]0;title\u2407"),
        ("gpj\u202egnp", "gpj\u202egnp", "gpj\ufffdgnp"),
        ("\x7f\x9b", "\u2421\ufffd", "\u2421\ufffd"),
    ],
)
def test_examples(text: str, cleaned: str, one_line: str) -> None:
    assert (clean(text), line(text)) == (cleaned, one_line)
