"""The reference backend over whole tiny models: how a text is cut, which lines share a batch and what was forgotten change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localllm import backends, quant
from localllm.archs import build
from localllm.backends.base import Backend, Chunk, Float, Options, Session, Want, likeliest
from localllm.errors import BackendError
from localllm.gguf import open_gguf
from localllm.model.program import Embed
from tests import tiny
from tests.backends import run

CASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"experts": 4, "rope_freqs": True}),
    ("llama", {"bias": True, "embed": 72, "heads": 3, "kv_heads": 1, "ff": 100, "type": "F16", "head_dim": 20}),
    ("qwen2", {"type": "Q8_0"}),
    ("qwen3", {"head_dim": 32, "rope": {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 32}}),
    ("gemma3", {"layers": 4, "period": 2, "window": 5}),
]
TOKENS = np.random.default_rng(1).integers(0, 300, 40).tolist()
CLOSE = 2e-5
"""Float32 sums in another order; logits are near one."""


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, (case[0], *case[1]))))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    family, spec = request.param
    with run.session(tiny.write(tmp_path_factory.mktemp("tiny") / "a.gguf", family, **spec)) as session:
        yield session


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Session]:
    with run.session(tiny.write(tmp_path / "a.gguf", layers=1), options=Options(batch=8)) as session:
        yield session


@pytest.fixture(scope="module")
def whole(opened: Session) -> Float:
    found = run.logits(opened, TOKENS, len(TOKENS))
    assert np.isfinite(found).all() and 0.3 < found.std() < 10
    return found


def same(found: Float, expected: Float) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * float(np.abs(expected).max()))


@pytest.mark.parametrize("batch", [1, 7, 16])
def test_chunks_equal_the_whole(opened: Session, whole: Float, batch: int) -> None:
    same(run.logits(opened, TOKENS, len(TOKENS), batch), whole)


def test_a_row_sees_no_later_token(opened: Session, whole: Float) -> None:
    same(run.logits(opened, TOKENS[:11], 1), whole[10:11])


def test_an_earlier_token_matters(opened: Session, whole: Float) -> None:
    changed = run.logits(opened, [(TOKENS[0] + 1) % 300, *TOKENS[1:]], len(TOKENS))
    assert np.abs(changed[4] - whole[4]).max() > 1e-3


def test_truncate(opened: Session, whole: Float) -> None:
    line = opened.new_line()
    run.feed(opened, line, TOKENS[:20])
    run.feed(opened, line, TOKENS[:9])
    assert line.truncate(25) == 25 and line.truncate(20) == 20 == line.length
    same(run.feed(opened, line, TOKENS[20:]), whole[20:])
    assert line.truncate(100) == 40 and line.truncate(-1) == 0
    same(run.feed(opened, line, TOKENS), whole)


def test_fork(opened: Session, whole: Float) -> None:
    line = opened.new_line()
    run.feed(opened, line, TOKENS[:20])
    other = line.fork()
    assert other.length == 20
    run.feed(opened, other, TOKENS[:7])
    same(run.feed(opened, line, TOKENS[20:]), whole[20:])
    other.truncate(20)
    line.close()
    same(run.feed(opened, other, TOKENS[20:]), whole[20:])


def test_several_lines_in_a_batch(opened: Session, whole: Float) -> None:
    lines = [opened.new_line() for _ in range(3)]
    run.feed(opened, lines[1], TOKENS[:13])
    batch = [Chunk(lines[0], TOKENS[:5], Want([4, 0])), Chunk(lines[1], TOKENS[13:14], Want([0])), Chunk(lines[2], TOKENS[:8])]
    first, second, third = opened.forward(batch).logits
    same(first, whole[[4, 0]])
    same(second, whole[13:14])
    assert third.shape == (0, whole.shape[1]) and [line.length for line in lines] == [5, 14, 8]
    same(run.feed(opened, lines[2], TOKENS[8:]), whole[8:])


def test_the_likeliest(opened: Session, whole: Float) -> None:
    lines = [opened.new_line() for _ in range(2)]
    outputs = opened.forward([Chunk(lines[0], TOKENS[:5], Want([4, 0], 3)), Chunk(lines[1], TOKENS[:2], Want([1]))])
    for row, found in zip(whole[[4, 0]], outputs.likeliest[0], strict=True):
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:3]
        assert found.ids == order
        np.testing.assert_allclose(found.logits, row[order], rtol=1e-5)
    assert len(outputs.logits[0]) == 0 and outputs.likeliest[1] == []
    same(outputs.logits[1], whole[1:2])


def test_the_likeliest_of_what_is_no_number() -> None:
    found = likeliest(np.array([1, np.nan, 3, 3], np.float32), 3)
    assert found.ids == [1, 2, 3] and np.isnan(found.logits[0])


def test_a_line_twice_in_a_batch(opened: Session, whole: Float) -> None:
    line = opened.new_line()
    first, second = opened.forward([Chunk(line, TOKENS[:6], Want([5])), Chunk(line, TOKENS[6:10], Want([3]))]).logits
    same(first, whole[5:6])
    same(second, whole[9:10])
    assert line.length == 10


def test_empty_chunk_and_batch(opened: Session, whole: Float) -> None:
    line = opened.new_line()
    assert opened.forward([]).logits == []
    assert opened.forward([Chunk(line, [])]).logits[0].shape == (0, whole.shape[1]) and line.length == 0


def test_outputs_are_the_callers_own(opened: Session, whole: Float) -> None:
    line = opened.new_line()
    found = run.feed(opened, line, TOKENS[:3])
    found[:] = 0
    same(run.feed(opened, line, TOKENS[3:]), whole[3:])


@pytest.mark.parametrize("token", [-1, 10**6])
def test_unknown_token(small: Session, token: int) -> None:
    line = small.new_line()
    with pytest.raises(BackendError, match=rf"token id {token} is not in the vocabulary, expected 0 to 435"):
        small.forward([Chunk(line, [1, token])])
    assert line.length == 0


def test_refused_batches(small: Session) -> None:
    line = small.new_line()
    with pytest.raises(BackendError, match=r"a batch of 9 rows, expected at most Options\.batch = 8"):
        small.forward([Chunk(line, [1] * 5), Chunk(small.new_line(), [1] * 4)])
    with pytest.raises(BackendError, match="-1 of the likeliest tokens are wanted, expected 0 to 64"):
        small.forward([Chunk(line, [1, 2], Want([1], -1))])
    with pytest.raises(BackendError, match="row 2 is wanted of a chunk of 2 tokens"):
        small.forward([Chunk(line, [1, 2], Want([2]))])


def test_closed(small: Session) -> None:
    line, other = small.new_line(), small.new_line()
    line.close()
    for use in (line.fork, lambda: small.forward([Chunk(line, [1])])):
        with pytest.raises(BackendError, match="closed"):
            use()
    small.close()
    with pytest.raises(BackendError, match="session is closed"):
        small.forward([Chunk(other, [1])])


def test_line_of_another_session(small: Session, tmp_path: Path) -> None:
    with run.session(tiny.write(tmp_path / "b.gguf", layers=1)) as other, pytest.raises(BackendError, match="another session"):
        small.forward([Chunk(other.new_line(), [1])])


def test_backend(tmp_path: Path) -> None:
    made: Backend = backends.get("reference")
    assert made.name == "reference" and made.available() is None
    options, seen = Options(batch=4), []
    with open_gguf(tiny.write(tmp_path / "a.gguf", type="Q4_0", tied=True)) as file:
        program = build(file)
        assert not made.missing(program, file)
        sizes = {name: 4 * int(np.prod(tensor.shape)) for name, tensor in file.tensors.items()}
        expected = sum(sizes.values()) + file.tensors["token_embd.weight"].nbytes + 4 * 4 * sum(program.widths.values())
        assert made.memory(program, file, options) == expected
        made.upload(program, file, options, lambda *progress: seen.append(progress))
        total = sum(tensor.nbytes for tensor in file.tensors.values())
    assert (
        len(seen) == len(sizes)
        and seen[-1] == ("load", total, total)
        and [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    )


def test_missing_types_are_named(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "a.gguf", tensors={"output_norm.weight": np.ones(64, np.float64)})
    with open_gguf(path) as file:
        assert list(backends.get("reference").missing(build(file), file)) == ["F64"]


def test_weights(tmp_path: Path) -> None:
    with open_gguf(tiny.write(tmp_path / "a.gguf", type="Q8_0", experts=3)) as file:
        program = build(file)
        weights = backends.get("reference").upload(program, file, Options())
        raw = {name: file.read(name) for name in file.tensors}
        types = {name: tensor.type for name, tensor in file.tensors.items()}
    for name, shape in program.shapes.items():
        np.testing.assert_array_equal(weights[name], quant.dequantize(raw[name], types[name]).reshape(shape))
        assert weights[name] is weights[name]
    embed = program.ops[0]
    assert isinstance(embed, Embed)
    np.testing.assert_array_equal(weights.rows(embed.weight, [7, 3, 7]), weights[embed.weight][[7, 3, 7]])
