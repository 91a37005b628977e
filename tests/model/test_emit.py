"""The forward pass as data: what every Program must hold, whatever the family."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from localllm.archs import build
from localllm.model.program import GLU, Add, Attend, Embed, Last, Linear, MoE, Op, Program, RMSNorm
from tests import tiny
from tests.archs.fake import fake

CASES: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in tiny.FAMILIES),
    ("llama", {"experts": 4}),
    ("llama", {"bias": True, "layers": 1}),
    ("gemma3", {"layers": 7, "period": 3}),
]
INPUTS = {"x", "q", "k", "v", "gate", "up", "a", "b"}


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, (case[0], *case[1]))))
def program(request: pytest.FixtureRequest) -> Program:
    family, spec = request.param
    return build(fake(family, **spec))


def reads(op: Op) -> list[str]:
    """Registers that an operation reads; MoE's gate and up are weights."""
    names = [field.name for field in fields(op) if field.name in INPUTS]
    return [getattr(op, name) for name in names if not (isinstance(op, MoE) and name in ("gate", "up"))]


def test_registers_are_written_before_they_are_read(program: Program) -> None:
    written: set[str] = set()
    for op in program.ops:
        assert set(reads(op)) <= written
        written.add(op.out)
    assert written == set(program.widths) and program.result in written


def test_no_operation_writes_what_it_reads(program: Program) -> None:
    assert all(op.out not in reads(op) for op in program.ops)


def test_a_register_has_all_rows_or_the_wanted_ones(program: Program) -> None:
    wanted: dict[str, bool] = {}
    for op in program.ops:
        short = {wanted[name] for name in reads(op)}
        assert len(short) <= 1
        is_short = isinstance(op, Last) or short == {True}
        assert wanted.setdefault(op.out, is_short) == is_short
        assert op.out.startswith("last.") == is_short
    assert wanted[program.result]


def test_last_follows_the_last_attention(program: Program) -> None:
    kinds = [type(op) for op in program.ops]
    place = len(kinds) - 1 - kinds[::-1].index(Attend)
    assert kinds[place + 1 : place + 3] == [Last, Last] and kinds.count(Last) == 2
    assert {op.x for op in program.ops if isinstance(op, Last)} == {program.ops[place].out, "x"}


def test_widths_fit(program: Program) -> None:
    widths, shapes = program.widths, program.shapes
    for op in program.ops:
        match op:
            case Embed():
                assert shapes[op.weight] == (program.vocab, widths[op.out])
            case RMSNorm():
                assert widths[op.x] == widths[op.out] and shapes[op.weight] == (widths[op.x],)
            case Linear():
                assert shapes[op.weight] == (widths[op.out], widths[op.x])
                assert op.bias is None or shapes[op.bias] == (widths[op.out],)
            case Attend():
                assert widths[op.q] == widths[op.out] == op.heads * op.head_dim
                assert widths[op.k] == widths[op.v] == op.kv_heads * op.head_dim
                assert all(shapes[name] == (op.head_dim,) for name in (op.q_norm, op.k_norm) if name)
            case GLU() | Add() | Last():
                assert {widths[name] for name in reads(op)} == {widths[op.out]}
            case MoE():
                assert shapes[op.gate] == shapes[op.up] == (op.experts, op.width, widths[op.x])
                assert shapes[op.down] == (op.experts, widths[op.out], op.width) and shapes[op.router] == (op.experts, widths[op.x])


def test_each_layer_has_its_cache(program: Program) -> None:
    layers = [op.layer for op in program.ops if isinstance(op, Attend)]
    assert layers == list(range(len(layers)))


def test_program_is_hashable_data() -> None:
    program = build(fake())
    assert hash(program.ops) == hash(build(fake()).ops)
    with pytest.raises(TypeError):
        program.widths["x"] = 1  # type: ignore[index]


def test_layers_share_registers() -> None:
    assert set(build(fake(layers=9)).widths) == set(build(fake(layers=2)).widths)


def test_llama_in_full() -> None:
    kinds = [type(op).__name__ for op in build(fake(layers=1)).ops]
    attention = ["RMSNorm", "Linear", "Linear", "Linear", "Attend", "Last", "Last", "Linear", "Add"]
    assert kinds == ["Embed", *attention, "RMSNorm", "Linear", "Linear", "GLU", "Linear", "Add", "RMSNorm", "Linear"]


def test_gemma_norms_what_is_added() -> None:
    ops = build(fake("gemma3")).ops
    norms = {op.out: op.weight for op in ops if isinstance(op, RMSNorm)}
    added = [norms[op.a].split(".")[2] for op in ops if isinstance(op, Add)]
    assert added == ["post_attention_norm", "post_ffw_norm"] * 2
