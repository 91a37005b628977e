"""What a backend is: the contract between Programs and the machines that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from localllm.backends.saved import Source, Target
from localllm.errors import OptionError
from localllm.model.program import Program

Float = NDArray[np.float32]
Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total): "load" in bytes, "compile" in kernels."""


class TensorInfo(Protocol):
    """A tensor of a file. ``shape`` is in NumPy's order, rows last but one: (out, in)."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type(self) -> str:
        """Name of the storage format, such as "Q4_K"."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row (the last axis)."""

    @property
    def nbytes(self) -> int: ...


class Readable(Protocol):
    """A file that stays open while somebody refers to it."""

    def fileno(self) -> int: ...

    def read_into(self, offset: int, out: memoryview, /) -> None:
        """Fill ``out`` (bytes) from ``offset`` on. Thread-safe. Raises FileError and its kinds."""


class TensorSource(Protocol):
    """Where weights come from. An open GGUF file is one."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def read_into(self, name: str, first_row: int, out: NDArray[np.uint8]) -> None:
        """Fill ``out`` (rows, row_bytes), C-contiguous, from row ``first_row`` on. All leading axes count as rows. Thread-safe."""

    def place(self, name: str) -> tuple[Readable, int]:
        """The file that a tensor lies in, and the offset of its first byte there."""


KV_TYPES = ("f32", "f16", "q8_0", "q4_0")
"""What keys and values can be kept as: floats, or blocks of 32 codes of 8 or 4 bits with a float16 step. Names are llama.cpp's."""


@dataclass(frozen=True, slots=True)
class Options:
    """What can be chosen about a session. ``threads``: None is one per physical core that we may use.
    ``batch``: the longest chunk of rows that is computed at once. ``kv_type_k``, ``kv_type_v``: what keys and values are kept as, one of
    KV_TYPES; None is the backend's own: f16, and f32 for the reference."""

    threads: int | None = None
    batch: int = 512
    kv_type_k: str | None = None
    kv_type_v: str | None = None


def cache_types(options: Options, default: str) -> tuple[str, str]:
    """Types of keys and values. Raises OptionError for one that is not known."""
    types = options.kv_type_k or default, options.kv_type_v or default
    for name, kind in zip(("kv_type_k", "kv_type_v"), types, strict=True):
        if kind not in KV_TYPES:
            raise OptionError(f"{name} is {kind!r}; expected one of {', '.join(KV_TYPES)}")
    return types


MOST = 64
"""How many of a row's likeliest tokens can be asked for."""


class Want(NamedTuple):
    """Which rows of a chunk are wanted, counted from its start, and as what: all their logits, or so many of the likeliest tokens (1 to
    MOST; all tokens where there are fewer)."""

    rows: Sequence[int] = ()
    likeliest: int = 0


class Likeliest(NamedTuple):
    """The largest logits of a row, largest first, and their token ids, the lowest first on ties. One that is no number comes first."""

    logits: Sequence[float]
    ids: Sequence[int]


class Chunk(NamedTuple):
    """What one line adds to a batch: token ids at its next positions, and which results are wanted."""

    line: Line
    tokens: Sequence[int]
    want: Want = Want()


def likeliest(logits: Float, k: int) -> Likeliest:
    """The k likeliest tokens of a row (V,), for backends that have it in NumPy."""
    order = np.argsort(np.where(np.isnan(logits), -np.inf, -logits), kind="stable")[:k]
    return Likeliest(logits[order].tolist(), order.tolist())


@dataclass(frozen=True, slots=True)
class Outputs:
    """One entry per chunk in each list. ``logits``: (rows wanted, V) float32, the caller's own; ``likeliest``: an entry per row wanted.
    What a chunk did not ask for is empty."""

    logits: list[Float] = field(default_factory=list)
    likeliest: list[list[Likeliest]] = field(default_factory=list)


class Line(Protocol):
    """One line of tokens and its state in a session."""

    @property
    def length(self) -> int:
        """Tokens held so far."""

    def truncate(self, n: int) -> int:
        """Forget what is beyond the first ``n`` tokens; the length really reached, at most n: the caller feeds the rest again.

        All lengths of the last batch can be reached if it had at most 16 rows, and checkpoints; others only where every layer still has
        what it takes, which windows and recurrent states do not always have.
        """

    def checkpoint(self) -> None:
        """Stay able to return to the present length. Of many checkpoints the oldest are given up."""

    def save(self, file: Target) -> None:
        """Write the line's state to a binary file; the ids of its tokens are not in it."""

    def fork(self) -> Line:
        """A second line with the same past; pages are shared and copied when written."""

    def memory(self) -> Mapping[int, int]:
        """Bytes that the line holds, by block of storage. Blocks that lines share have the same key, while these are open."""

    def close(self) -> None:
        """Give the storage back."""


class Session(Protocol):
    """A compiled Program with its storage."""

    @property
    def threads(self) -> int:
        """How many threads compute."""

    def profile(self) -> AbstractContextManager[dict[str, float]]:
        """While it is open, seconds by kind of work are added up in the dictionary. Slows the session down a little."""

    @property
    def fingerprint(self) -> str:
        """Names everything but the weights that can change a bit of what this session computes: with the same file, two sessions of one
        fingerprint can go on with each other's saved lines."""

    def new_line(self) -> Line: ...

    def restore(self, file: Source) -> Line:
        """A line as ``Line.save`` has written it, with the same logits to come, bit for bit; its checkpoints are not kept.

        Raises SavedLineError for whatever is not such a file of a session with this fingerprint.
        """

    def forward(self, batch: Sequence[Chunk]) -> Outputs:
        """Append every chunk to its line and compute what is wanted. At most Options.batch rows in all."""

    def close(self) -> None: ...


class Backend(Protocol):
    """A way to run Programs."""

    name: str
    exact: bool
    """Whether the logits of a token are the same bits whatever they are computed with."""

    def available(self) -> str | None:
        """None, or why this backend can't run on this machine."""

    def missing(self, program: Program, source: TensorSource) -> Sequence[str]:
        """Operations and tensor types that it can't do, by name."""

    def memory(self, program: Program, source: TensorSource, options: Options) -> int:
        """Bytes that weights and scratch will take, without the cache."""

    def cache(self, program: Program, source: TensorSource, options: Options) -> Mapping[int, int]:
        """Bytes of keys and values that a token takes, by the window of the layers that they are in; 0: layers that keep all tokens."""

    def upload(self, program: Program, source: TensorSource, options: Options, progress: Progress | None = None) -> Any:
        """The weights that the Program names, in the backend's own form; once per file.

        They may be read in the background until ``compile``, which then raises what reading raises."""

    def compile(self, program: Program, weights: Any, options: Options, progress: Progress | None = None) -> Session:
        """A session over uploaded weights. Cheap."""
