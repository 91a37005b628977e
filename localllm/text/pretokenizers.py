r"""How text is cut into words before BPE merges it, by the name in ``tokenizer.ggml.pre``.

A pre-tokenizer is a list of regular expressions. The first cuts the text into its matches and the gaps between them, the
next cuts each of these pieces again, and so on. The expressions are the ones llama.cpp uses, since files are written for
it; where its engine reads a class in its own way the class is spelled out here (it takes every ``\p{Lu}`` for ``\p{L}``,
and ``~`` for no symbol). Written for Oniguruma, the engine of the ``tokenizers`` package.
"""

from __future__ import annotations

from typing import NamedTuple

from localllm.errors import TokenizerError


class PreTokenizer(NamedTuple):
    """The expressions of one name, and what else that name decides."""

    regexes: tuple[str, ...]
    clean_spaces: bool = False
    """Decoding removes the space before punctuation and some contractions."""
    ignore_merges: bool = False
    """A word that is a token is that token, whatever the merges say."""
    add_bos: bool = False
    """BOS is added where the file does not say."""
    raw: bool = False
    """Tokens are plain UTF-8, and ``<0xNN>`` for bytes; else they are in GPT-2's byte alphabet."""
    escape: bool = False
    """Spaces are written as U+2581."""
    newline_words: bool = False
    """A run of newlines that is a token is that token, though no merge leads to it; BOS is added whatever the file says."""
    has_bos: bool = True
    """False: there is no BOS unless the file names one."""


# Digits in groups of three, counted from the right. A lookahead at every group would make long runs quadratic: the first
# group of a run looks ahead, and \G, the end of the match before, goes on from it.
_THREES_ASCII = r"\G(?<=[0-9])[0-9]{3}|[0-9]{3}(?=(?:[0-9]{3})*+(?![0-9]))"
# llama.cpp leaves the first group with the text before it.
_THREES = r"\G(?:(?<=\p{N})\p{N}{3}|\P{N}*+\p{N}{1,3}(?=(?:\p{N}{3})*+(?!\p{N})))"

_SUFFIX = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_PUNCT = r" ?[^\s\p{L}\p{N}]+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_KANA_HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_HAN = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\U0002ceb0-\U0002ebef\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_NOT_LOWER, _NOT_UPPER = r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"
_MARK_NOT_LOWER, _MARK_NOT_UPPER = r"[[\p{L}\p{M}]&&[^a-z]]", r"[[\p{L}\p{M}]&&[^A-Z]]"


def _cased(lower: str, upper: str, suffix: str) -> str:
    """Words that may begin with capitals, as o200k has them."""
    head = r"[^\r\n\p{L}\p{N}]?"
    return f"{head}{lower}*{upper}+{suffix}|{head}{lower}+{upper}*{suffix}"


_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+|{_PUNCT}|\s+(?!\S)"
_LLAMA3 = rf"{_SUFFIX}|{_WORD}|\p{{N}}{{1,3}}|{_PUNCT}[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_SUFFIX}|{_WORD}|\p{{N}}|{_PUNCT}[\r\n]*|{_SPACES}"
_RUNS = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_ASCII_PUNCT = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_DEEPSEEK_HEAD = rf"{_ASCII_PUNCT}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
_DEEPSEEK3 = rf"{_DEEPSEEK_HEAD}[\r\n]*|{_SPACES}"
_DEEPSEEK_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f"
    "\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126"
    "\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_ASIAN = "[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]&&\\S]+"  # no white space: llama.cpp reads it as a vertical tab
_MARKED = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_SUFFIX}?"
_LINES = "[^\\n]+|[\\n]+"
_KIMI = rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^{_HAN}]]+{_SUFFIX}?|\p{{N}}{{1,3}}|{_PUNCT}[\r\n]*|{_SPACES}"

_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"), clean_spaces=True)

_NAMES: tuple[tuple[str, PreTokenizer], ...] = (
    ("default", _DEFAULT),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        PreTokenizer((_LLAMA3,), clean_spaces=True, ignore_merges=True, add_bos=True),
    ),
    ("dbrx smaug-bpe", PreTokenizer((_LLAMA3,), clean_spaces=True)),
    ("chatglm-bpe", PreTokenizer((_LLAMA3,), clean_spaces=True, has_bos=False)),
    ("glm4 glm5", PreTokenizer((_LLAMA3,), clean_spaces=True, ignore_merges=True, has_bos=False)),
    (
        "jais-2",
        PreTokenizer(
            (
                rf"{_SUFFIX}|{_WORD}|\p{{N}}{{1,3}}|{_PUNCT}[\r\n]*|\s*[\r\n]+|"
                + "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4))
                + r"\s{1,2}(?!\S)|\s",
            ),
            clean_spaces=True,
        ),
    ),
    (
        "minicpm5",
        PreTokenizer((r"\p{N}{1,3}", rf"{_SUFFIX}|{_WORD}|\p{{N}}+|{_PUNCT}[\r\n]*|{_SPACES}"), clean_spaces=True, ignore_merges=True),
    ),
    (
        "deepseek-llm",
        PreTokenizer(
            (
                "[\r\n]",
                f"\\s?[{_DEEPSEEK_LETTERS}]+",
                "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
                r"\s+\z",
                _ASIAN,
                r"\p{N}+",
            )
        ),
    ),
    ("deepseek-coder", PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _ASIAN, r"\p{N}"))),
    ("deepseek-v3 hunyuan-dense hy_v4 joyai-llm", PreTokenizer((r"\p{N}{1,3}", _KANA_HAN, _DEEPSEEK3))),
    (
        "spark2_5",
        PreTokenizer((r"\p{N}{1,3}", _KANA_HAN, rf"{_DEEPSEEK_HEAD}|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")),
    ),
    (
        "youtu",
        PreTokenizer((_YOUTU_SCRIPTS, rf"{_MARKED}|\p{{N}}|{_PUNCT}[\r\n/]*|{_SPACES}"), ignore_merges=True),
    ),
    (
        "falcon",
        PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"), clean_spaces=True),
    ),
    (
        "starcoder refact codeshell exaone minerva-7b mellum2",
        PreTokenizer((r"\p{N}", _GPT2), clean_spaces=True),
    ),
    ("command-r smollm", PreTokenizer((r"\p{N}", _GPT2))),
    (
        "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en jina-v2-code roberta-bpe"
        " mpt olmo jais exaone4",
        PreTokenizer((_GPT2,), clean_spaces=True),
    ),
    ("trillion granite-docling", PreTokenizer((_GPT2,))),
    ("stablelm2 megrez", PreTokenizer((_QWEN2,), clean_spaces=True)),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2", PreTokenizer((_QWEN2,))),
    (
        "qwen35",
        PreTokenizer((rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",)),
    ),
    ("ufakzeka", PreTokenizer((rf"{_WORD}|\p{{N}}|{_PUNCT}[\r\n]*|{_SPACES}",))),
    ("poro-chat", PreTokenizer((_RUNS,))),
    ("bloom gpt3-finnish", PreTokenizer((_RUNS,), clean_spaces=True)),
    ("viking", PreTokenizer((_RUNS, r"\p{N}"))),
    (
        "tekken",
        PreTokenizer((rf"{_cased(_NOT_LOWER, _NOT_UPPER, '')}|\p{{N}}|{_PUNCT}[\r\n/]*|{_SPACES}",), ignore_merges=True, add_bos=True),
    ),
    (
        "chameleon",
        PreTokenizer(
            (
                "<sentinel:[0-9]+>",
                "IMGIMG[A-I]{1,4}Z",
                "[\\t\\n]|    |  ",
                r"\p{N}",
                r"[\p{P}!-/:-@\[-`{-~]",
                _GPT2,
            ),
            add_bos=True,
        ),
    ),
    (
        "gpt-4o llama4 kanana2 talkie minimax-m2",
        PreTokenizer((rf"{_cased(_NOT_LOWER, _NOT_UPPER, _SUFFIX + '?')}|\p{{N}}{{1,3}}|{_PUNCT}[\r\n/]*|{_SPACES}",)),
    ),
    (
        "granite-embed-multi-97m",
        PreTokenizer(
            (rf"{_cased(_MARK_NOT_LOWER, _MARK_NOT_UPPER, _SUFFIX + '?')}|\p{{N}}{{1,3}}|{_PUNCT}[\r\n/]*|{_SPACES}",),
            ignore_merges=True,
        ),
    ),
    (
        "tiny_aya cohere2moe",
        PreTokenizer((_THREES, rf"{_MARKED}|\p{{N}}{{1,3}}|{_PUNCT}[\r\n/]*|{_SPACES}")),
    ),
    ("kimi-k2", PreTokenizer((_KIMI,))),
    ("superbpe", PreTokenizer((r"\p{N}+", _THREES_ASCII))),
    (
        "bailingmoe bailingmoe2 llada-moe",
        PreTokenizer(
            (
                rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}|{_PUNCT}[\r\n]*|"
                r"\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
    ),
    ("seed-coder", PreTokenizer((rf"{_SUFFIX}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",))),
    ("afmoe", PreTokenizer((_THREES, _AFMOE_SCRIPTS, _DEEPSEEK3))),
    ("laguna", PreTokenizer((_LINES, _QWEN2))),
    (
        "exaone-moe",
        PreTokenizer(
            (
                rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|{_PUNCT}[\r\n/]?|"
                r"\s*[\r\n]|\s+(?!\S)|\s+",
            ),
            clean_spaces=True,
        ),
    ),
    (
        "gemma4 granite-embed-multi-311m",
        PreTokenizer((_LINES,), clean_spaces=True, add_bos=True, raw=True, escape=True, newline_words=True),
    ),
    ("whitespace", PreTokenizer((r"\S+",), clean_spaces=True, raw=True)),
    ("sarvam-moe", PreTokenizer((_LINES,), raw=True, escape=True)),
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: pre for names, pre in _NAMES for name in names.split()}
"""Every name that ``tokenizer.ggml.pre`` may hold."""


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of that name; an empty name is ``default``. TokenizerError for a name that is not known."""
    try:
        return PRE_TOKENIZERS[name or "default"]
    except KeyError:
        known = " ".join(sorted(PRE_TOKENIZERS))
        raise TokenizerError(f"tokenizer.ggml.pre: pre-tokenizer {name!r} is not known here; known are: {known}") from None
