"""Special tokens that files do not name: found by their text, as llama.cpp does, and what follows from them."""

from __future__ import annotations

from localllm.text.vocab import CONTROL, LSTRIP, NORMAL, RSTRIP, UNKNOWN, UNUSED, USER_DEFINED, Vocab, text

# The first that is in the vocabulary takes the role, unless the file has named another.
_ROLES: dict[str, tuple[str, ...]] = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
# Whoever has one of these ends with it.
_EOG = (
    *_ROLES["eot"],
    *_ROLES["eom"],
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
)
# gpt-oss writes its channels with these: part of the text that is shown.
_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
_STRIP_NAMES = ("</s>", "<unk>", "<s>", "<|endoftext|>", "<mask>", "[MASK]")
_PLAMO_EOS = "<|plamo:eos|>"
_ALL = {name for names in (*_ROLES.values(), _EOG, _SHOWN, _STRIP_NAMES, (_PLAMO_EOS,)) for name in names}


def find_special(vocab: Vocab) -> None:
    """Complete ``vocab.special``, ``vocab.eog`` and the attributes of the tokens that have one of the known texts."""
    found = {name: vocab.ids[name.encode()] for name in _ALL if name.encode() in vocab.ids}
    for role, names in _ROLES.items():
        name = next((n for n in names if n in found), None)
        if name is not None and role not in vocab.special:
            vocab.special[role] = found[name]
            vocab.attr[found[name]] |= CONTROL
    for i in vocab.with_attr(CONTROL):
        if b"unused" in vocab.tokens[i]:
            vocab.attr[i] |= UNUSED
    vocab.eog = frozenset(_end_of_generation(vocab, found))
    _strip(vocab, found)


def _end_of_generation(vocab: Vocab, found: dict[str, int]) -> set[int]:
    named = {found[name] for name in _EOG if name in found}
    for i in named:
        vocab.attr[i] |= CONTROL
    for name in _SHOWN:
        if name in found:
            vocab.attr[found[name]] = USER_DEFINED
    roles = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
    eog = named | {vocab.special[role] for role in roles if role in vocab.special}

    def ends(*names: str) -> bool:
        return any(name in found and found[name] in eog for name in names)

    # gpt-oss and solar-open go on after "<|end|>"; for gemma4 and plamo "</s>" is a tag like others.
    if ends("<|end|>") and ends("<|call|>", "<|calls|>") and ends("<|return|>", "<|flush|>"):
        eog.discard(found["<|end|>"])
        vocab.attr[found["<|end|>"]] = USER_DEFINED
    if ends("</s>") and ends("<|tool_response>", _PLAMO_EOS):
        eog.discard(found["</s>"])
        vocab.attr[found["</s>"]] = NORMAL
    return eog


def _strip(vocab: Vocab, found: dict[str, int]) -> None:
    """Tokens that swallow the white space beside them; GGUF has no field for it, so model names decide."""
    name = text(vocab.metadata, "general.name").lower()
    pre = text(vocab.metadata, "tokenizer.ggml.pre")
    arch = text(vocab.metadata, "general.architecture")
    if any(n in pre for n in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or arch in ("nomic-bert-moe", "jina-bert-v3"):
        _set(vocab, found, LSTRIP, "<mask>")
    elif "phi-3" in name or "phi3" in name:
        for i in vocab.with_attr(CONTROL | USER_DEFINED | UNKNOWN):
            vocab.attr[i] |= RSTRIP
        _set(vocab, found, RSTRIP, "</s>")
        for token in ("<unk>", "<s>", "<|endoftext|>"):
            if token in found:
                vocab.attr[found[token]] &= 0xFFFF ^ RSTRIP
    elif "modern-bert" in name:
        _set(vocab, found, LSTRIP, "[MASK]")


def _set(vocab: Vocab, found: dict[str, int], bit: int, token: str) -> None:
    if token in found:
        vocab.attr[found[token]] |= bit
