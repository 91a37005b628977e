"""The argument records of the kernels that are not about matrices, and the memory that those kernels need.

Common to all: x is the address of row 0 of a float32 register and x_stride the bytes from one row to the next; ``rows`` is the address of
the int64 that says how many rows there are in this call. Norm weights are float32, padded with zeros to a multiple of 64.

A page holds TILE tokens of every layer of its kind; ``kv_types.py`` says how.
"""

from __future__ import annotations

from localllm.backends.cpu.records import QUERIES, TILE, Record

VECTOR = 16
"""Floats in a vector."""
MANY_HEADS = 2
"""Query heads that attention over many rows takes at once, at most."""

RMS_NORM = Record(
    "x",
    "x_stride",
    "weight",  # address of the weight
    "n",  # true width
    "eps",  # bits of a float32
    "out",
    "out_stride",
    "rows",
)
ADD = Record(
    "a",
    "a_stride",
    "b",
    "b_stride",
    "out",  # may be a or b
    "out_stride",
    "n",  # width
    "rows",
)
GLU = Record(
    "gate",
    "gate_stride",
    "up",
    "up_stride",
    "out",  # may be gate or up
    "out_stride",
    "n",  # width
    "rows",
)
ROPE_STORE = Record(
    "q",  # heads side by side; rotated and scaled in place
    "q_stride",
    "k",  # only read
    "k_stride",
    "v",  # only read
    "v_stride",
    "heads",
    "kv_heads",
    "head_dim",
    "dim",  # how many values of a head are rotated; even
    "rope",  # which of the four tables of state.ROPES
    "q_norm",  # weight of a norm of each head, or 0: none
    "k_norm",
    "eps",  # bits of the norms' float32 eps
    "scale",  # bits of the float32 factor of q
    "table_step",  # bytes from one tile to the next in a page table, which has a column for each kind of layer
    "table_offset",  # bytes from there to this layer's column
    "layer_offset",  # bytes from the start of a page to this layer's first head
    "wide",  # width that keys and values are padded to
    "key_bytes",  # bytes from the start of a head's part to its values
    "head_bytes",  # bytes from one head's part to the next
    "rows",
)
ATTEND = Record(
    "q",  # as rope_store left it
    "q_stride",
    "out",  # heads side by side
    "out_stride",
    "heads",
    "kv_heads",
    "head_dim",
    "window",  # how many positions a query sees, itself included; 0: all
    "table_step",  # bytes from one tile to the next in a page table, which has a column for each kind of layer
    "table_offset",  # bytes from there to this layer's column
    "layer_offset",  # bytes from the start of a page to this layer's first head
    "wide",  # width that keys and values are padded to
    "key_bytes",  # bytes from the start of a head's part to its values
    "head_bytes",  # bytes from one head's part to the next
    "rows",
)
ROUTE = Record(
    "x",  # a router logit for each expert
    "x_stride",
    "experts",
    "used",  # how many of them a row takes
    "ids",  # int64 [rows][used], best first
    "weights",  # float32 [rows][used], their sum is 1
    "rows",
)
LIKELIEST = Record(
    "x",  # logits
    "x_stride",
    "n",  # how many; at least state.ASKED
    "most",  # room for so many of each row
    "logits",  # float32 [rows][most], largest first
    "ids",  # int64 [rows][most]
)


def partial_bytes(wide: int) -> int:
    """Bytes of ``state.PARTIALS`` for each row, head and key tile: maximum and sum in a vector of their own, then the output."""
    return 4 * (VECTOR + wide)


def rope_scratch(head_dim: int) -> int:
    """Bytes of scratch that ``rope_store`` needs: one head, padded as a norm wants it, and a vector that is read past its end."""
    return 4 * (-(-head_dim // 64) * 64 + VECTOR)


def few_scratch(heads: int, kv_heads: int, wide: int) -> int:
    """Bytes of scratch that ``attend_few`` and ``merge_few`` need: the scores of a tile for a group of heads, or one output and
    its factors."""
    return 4 * max(TILE * (heads // kv_heads), wide + 3 * VECTOR)


def many_scratch(heads: int, kv_heads: int, wide: int) -> int:
    """Bytes of scratch that ``attend_many`` needs: keys and values of a tile, scores and their sums; queries and state of a group."""
    shared = 2 * TILE * wide + MANY_HEADS * (TILE + VECTOR) * QUERIES
    return 4 * (shared + heads // kv_heads * QUERIES * (2 * wide + 2))


def route_scratch(experts: int) -> int:
    """Bytes of scratch that ``route`` needs: the probabilities of a row."""
    return 4 * (-(-experts // VECTOR) * VECTOR)
