"""The Backend itself: what it can do, what it needs, and the upload of weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import get_args

from localllm import quant
from localllm.backends.base import Options, Progress, TensorSource
from localllm.backends.reference.session import ReferenceSession
from localllm.backends.reference.weights import Weights
from localllm.model.program import Attend, Embed, Op, Program


class ReferenceBackend:
    """NumPy on one machine, for every format that ``localllm.quant`` knows. Options.threads has no effect here."""

    name = "reference"
    exact = False

    def available(self) -> str | None:
        """NumPy runs everywhere."""
        return None

    def missing(self, program: Program, source: TensorSource) -> Sequence[str]:
        """Operations and tensor types without an implementation, each once."""
        ops = {type(op).__name__ for op in program.ops if not isinstance(op, get_args(Op))}
        types = {source.tensors[name].type for name in program.shapes}
        return sorted(ops) + sorted(types - set(quant.NAMES))

    def memory(self, program: Program, source: TensorSource, options: Options) -> int:
        """Bytes of all weights in float32, of the raw embeddings, and of one register each for a full batch."""
        weights = sum(4 * math.prod(shape) for shape in program.shapes.values())
        raw = sum(source.tensors[op.weight].nbytes for op in program.ops if isinstance(op, Embed))
        return weights + raw + 4 * options.batch * sum(program.widths.values())

    def cache(self, program: Program, source: TensorSource, options: Options) -> Mapping[int, int]:
        """Float32 whatever the type is: types of fewer bits are only imitated, and windows keep all."""
        layers = {op.layer: 8 * op.kv_heads * op.head_dim for op in program.ops if isinstance(op, Attend)}
        return {0: sum(layers.values())}

    def upload(self, program: Program, source: TensorSource, options: Options, progress: Progress | None = None) -> Weights:
        """Every tensor's blocks, read from the file now; each becomes float32 when it is first used."""
        return Weights(program, source, progress)

    def compile(self, program: Program, weights: Weights, options: Options, progress: Progress | None = None) -> ReferenceSession:
        """A session that interprets the Program op by op."""
        return ReferenceSession(program, weights, options)
