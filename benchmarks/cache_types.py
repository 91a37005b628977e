"""What a quantised cache costs: KL divergence of a model's predictions from those with an f16 cache, and the cache's size.

    python benchmarks/cache_types.py model.gguf other.gguf --text text.txt [--chunks 12] [--ctx 512] [--write]

``--write`` puts the table between its markers in docs/cache.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import localllm
from localllm.footprint import footprint
from localllm.generation.divergence import Divergence, divergence
from localllm.generation.perplexity import cut

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cache.md"
BEGIN, END = "<!-- benchmarks/cache_types.py: begin -->", "<!-- end -->"
PAIRS = (("f32", "f32"), ("q8_0", "q8_0"), ("f16", "q4_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0"))
HEAD = ("model", "keys", "values", "kB a token", "mean KL", "99 % below", "largest", "same likeliest token", "perplexity", "with f16")


def compared(path: Path, text: str, ctx: int, chunks: int | None) -> Iterator[tuple[str, str, float, Divergence]]:
    """For each pair of types: their names, kilobytes a token, and what they cost."""
    with localllm.load(path, ctx=ctx) as base:
        windows = cut(base.tokenizer, text, ctx, chunks)
        for k, v in PAIRS:
            with localllm.open_gguf(path) as file:
                size = footprint(file, cache_type_k=k, cache_type_v=v).per_token / 1e3
            with localllm.load(path, ctx=ctx, cache_type_k=k, cache_type_v=v) as model:
                yield k, v, size, divergence(base, model, windows)


def table(models: Sequence[Path], text: str, ctx: int, chunks: int | None) -> str:
    """As Markdown."""
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|---|" + "--:|" * (len(HEAD) - 3)]
    count = 0
    for path in models:
        for k, v, size, found in compared(path, text, ctx, chunks):
            cells = path.stem, k, v, f"{size:.1f}", f"{found.mean:.6f} ± {found.error:.6f}", f"{found.p99:.5f}", f"{found.largest:.4f}"
            lines.append(f"| {' | '.join(cells)} | {found.same:.2%} | {found.ppl:.4f} | {found.base_ppl:.4f} |")
            count = found.tokens
            print(lines[-1], file=sys.stderr)
    return "\n".join([*lines, "", f"{count} predictions, the second halves of windows of {ctx} tokens."])


def write(text: str) -> None:
    """Puts the table between its markers."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--chunks", type=int)
    parser.add_argument("--write", action="store_true", help="put the table into docs/cache.md")
    asked = parser.parse_args()
    found = table(asked.models, asked.text.read_text(encoding="utf-8"), asked.ctx, asked.chunks)
    print(found)
    if asked.write:
        write(found)


if __name__ == "__main__":
    main()
