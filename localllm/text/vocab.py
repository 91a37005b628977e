"""The vocabulary of a GGUF file: tokens, their attributes and the special ids, checked and with llama.cpp's defaults."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from localllm.errors import TokenizerError
from localllm.gguf.strings import Strings
from localllm.text.pretokenizers import PreTokenizer, pre_tokenizer

UNKNOWN, UNUSED, NORMAL, CONTROL, USER_DEFINED, BYTE, LSTRIP, RSTRIP = 1, 2, 4, 8, 16, 32, 128, 256
"""Attribute bits of a token, as in llama.h."""

# Indexed by `tokenizer.ggml.token_type`: undefined, normal, unknown, control, user defined, unused, byte.
_ATTR_OF_TYPE = np.array([0, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE], np.uint16)


class Kind(NamedTuple):
    """What `tokenizer.ggml.model` decides where the file says nothing."""

    name: str
    special: Mapping[str, int]
    add_bos: bool = False
    add_eos: bool = False
    add_space_prefix: bool = False
    clean_spaces: bool = False


KINDS: dict[str, Kind] = {
    "gpt2": Kind("bpe", {"bos": 11, "eos": 11}),
    "gemma4": Kind("bpe", {}),
    "llama": Kind("spm", {"bos": 1, "eos": 2, "unk": 0}, add_bos=True, add_space_prefix=True),
    "bert": Kind("wpm", {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103}, add_bos=True, clean_spaces=True),
    "t5": Kind("ugm", {"eos": 1, "unk": 2, "pad": 0}, add_eos=True),
    "rwkv": Kind("rwkv", {}),
}
"""The values of `tokenizer.ggml.model` that are supported."""

# Later names of one role win: the last three are what old files call the FIM ids.
_ID_KEYS = (
    ("bos", "bos"),
    ("eos", "eos"),
    ("eot", "eot"),
    ("eom", "eom"),
    ("unk", "unknown"),
    ("sep", "seperator"),
    ("pad", "padding"),
    ("mask", "mask"),
    ("fim_pre", "fim_pre"),
    ("fim_suf", "fim_suf"),
    ("fim_mid", "fim_mid"),
    ("fim_pad", "fim_pad"),
    ("fim_rep", "fim_rep"),
    ("fim_sep", "fim_sep"),
    ("fim_pre", "prefix"),
    ("fim_suf", "suffix"),
    ("fim_mid", "middle"),
)


@dataclass
class Vocab:
    """Tokens in file order and everything that is said about them."""

    kind: Kind
    pre: PreTokenizer | None
    tokens: list[bytes]
    ids: dict[bytes, int] = field(repr=False)
    """The id of each token."""
    scores: NDArray[np.float32]
    attr: NDArray[np.uint16]
    special: dict[str, int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    clean_spaces: bool
    metadata: Mapping[str, Any] = field(repr=False)
    eog: frozenset[int] = frozenset()

    def with_attr(self, bits: int) -> list[int]:
        """The ids that have any of these attribute bits, rising."""
        return np.flatnonzero(self.attr & bits).tolist()

    def flag(self, key: str, default: bool) -> bool:
        """The bool `tokenizer.ggml.KEY`."""
        return flag(self.metadata, key, default)


def shown(value: object) -> str:
    """A value from a file, short and on one line, for messages."""
    return " ".join(reprlib.repr(value).split())


def flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    """The bool `tokenizer.ggml.KEY`, or the default where the file has none. TokenizerError if it is no bool."""
    value = metadata.get(f"tokenizer.ggml.{key}", default)
    if not isinstance(value, (bool, np.bool_)):
        raise TokenizerError(f"tokenizer.ggml.{key}: a bool was expected, not {shown(value)}")
    return bool(value)


def text(metadata: Mapping[str, Any], key: str) -> str:
    """The string at that key, or "". TokenizerError if it is no string."""
    value = metadata.get(key, "")
    if not isinstance(value, str):
        raise TokenizerError(f"{key}: a string was expected, not {shown(value)}")
    return value


def strings(metadata: Mapping[str, Any], key: str) -> list[bytes] | None:
    """The array of strings at that key as bytes, or None where the file has none. TokenizerError if it is no such array."""
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, Strings):
        return value.raws()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise TokenizerError(f"{key}: an array of strings was expected, not {shown(value)}")
    raws = [x.encode("utf-8", "surrogateescape") if isinstance(x, str) else x for x in value]
    if not all(isinstance(x, bytes) for x in raws):
        raise TokenizerError(f"{key}: an array of strings was expected, it holds other things")
    return raws


def _numbers(metadata: Mapping[str, Any], key: str, count: int, kinds: str) -> NDArray[Any] | None:
    """The array of numbers at that key, at least ``count`` long, cut to it."""
    value = metadata.get(key)
    if value is None:
        return None
    try:
        array = np.asarray(value)
    except ValueError:
        raise TokenizerError(f"{key}: an array of numbers was expected") from None
    if array.ndim != 1 or (array.dtype.kind not in kinds and array.size):
        raise TokenizerError(f"{key}: an array of numbers was expected, not {array.dtype} of shape {array.shape}")
    if len(array) < count:
        raise TokenizerError(f"{key}: has {len(array)} entries, the vocabulary has {count} tokens")
    return array[:count]


def _kind(metadata: Mapping[str, Any]) -> tuple[Kind, PreTokenizer | None]:
    model = text(metadata, "tokenizer.ggml.model")
    if model in ("no_vocab", "none"):
        raise TokenizerError(f"tokenizer.ggml.model is {model!r}: this file holds no tokenizer; use one that has a vocabulary")
    if not model:
        raise TokenizerError("tokenizer.ggml.model: the key is missing, so this file has no tokenizer")
    if model not in KINDS:
        raise TokenizerError(f"tokenizer.ggml.model: tokenizer {model!r} is not known here; known are: {' '.join(KINDS)}")
    kind = KINDS[model]
    if kind.name != "bpe":
        return kind, None
    pre = pre_tokenizer("gemma4" if model == "gemma4" else text(metadata, "tokenizer.ggml.pre"))
    if not pre.has_bos:
        kind = kind._replace(special={k: v for k, v in kind.special.items() if k != "bos"})
    return kind._replace(add_bos=pre.add_bos, clean_spaces=pre.clean_spaces), pre


def _tokens(metadata: Mapping[str, Any]) -> list[bytes]:
    key = "tokenizer.ggml.tokens"
    tokens = strings(metadata, key)
    if not tokens:
        raise TokenizerError(f"{key}: the key is missing or empty, so this file has no vocabulary")
    if b"" in tokens:
        # No text can be an empty token, and a library would refuse it: llama.cpp's stand-in.
        tokens = [token or b"[EMPTY_%d]" % i for i, token in enumerate(tokens)]
    return tokens


def _index(tokens: list[bytes]) -> dict[bytes, int]:
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) < len(tokens):
        i = next(i for i, raw in enumerate(tokens) if ids[raw] != i)
        raise TokenizerError(
            f"tokenizer.ggml.tokens: {tokens[i]!r:.60} is there twice, as {i} and {ids[tokens[i]]}; convert the model again"
        )
    return ids


def _attributes(metadata: Mapping[str, Any], count: int) -> NDArray[np.uint16]:
    types = _numbers(metadata, "tokenizer.ggml.token_type", count, "iu")
    if types is None:
        return np.full(count, NORMAL, np.uint16)
    return _ATTR_OF_TYPE[np.where((types >= 0) & (types < len(_ATTR_OF_TYPE)), types, 0)]


def _scores(metadata: Mapping[str, Any], count: int) -> NDArray[np.float32]:
    scores = _numbers(metadata, "tokenizer.ggml.scores", count, "fiu")
    # A score that is no number would make the order of merges undefined.
    return np.zeros(count, np.float32) if scores is None else np.nan_to_num(scores.astype(np.float32))


def _special(metadata: Mapping[str, Any], kind: Kind, count: int) -> dict[str, int]:
    """The special ids of the kind and of the file; an id that is out of range is left out, as llama.cpp does."""
    special = {role: id_ for role, id_ in kind.special.items() if id_ < count}
    for role, name in _ID_KEYS:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if isinstance(value, (int, np.integer)) and 0 <= value < count:
            special[role] = int(value)
    return special


def read_vocab(metadata: Mapping[str, Any]) -> Vocab:
    """The vocabulary in a file's metadata. TokenizerError if there is none, or one that contradicts itself."""
    kind, pre = _kind(metadata)
    tokens = _tokens(metadata)
    vocab = Vocab(
        kind=kind,
        pre=pre,
        tokens=tokens,
        ids=_index(tokens),
        scores=_scores(metadata, len(tokens)),
        attr=_attributes(metadata, len(tokens)),
        special=_special(metadata, kind, len(tokens)),
        # Files with this pre-tokenizer say false and mean true (llama.cpp overrides them too).
        add_bos=flag(metadata, "add_bos_token", kind.add_bos) or (pre is not None and pre.newline_words),
        add_eos=flag(metadata, "add_eos_token", kind.add_eos),
        add_space_prefix=flag(metadata, "add_space_prefix", kind.add_space_prefix),
        clean_spaces=kind.clean_spaces,
        metadata=metadata,
    )
    for wanted, role in ((vocab.add_bos, "bos"), (vocab.add_eos, "eos"), (kind.name == "wpm", "sep"), (kind.name == "wpm", "bos")):
        if wanted and role not in vocab.special:
            raise TokenizerError(f"the tokenizer adds a {role} token, but the file names none that is in its vocabulary")
    return vocab
