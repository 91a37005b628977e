"""The cpu backend: Numba kernels on a tape, for the instructions of the processor that it runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localllm.backends.base import Options, Progress, TensorSource, cache_types
from localllm.backends.cpu.buffers import capacities
from localllm.backends.cpu.layout import padded
from localllm.backends.cpu.outliers import float_keys
from localllm.backends.cpu.pages import kinds
from localllm.backends.cpu.records import TILE
from localllm.backends.cpu.session import CpuSession
from localllm.backends.cpu.weights import Weights, read_vector, total_bytes, upload
from localllm.errors import LocalLLMError
from localllm.model.program import Program
from localllm.quant import NAMES


class CpuBackend:
    """Compiled kernels and packed weights."""

    name = "cpu"
    exact = True

    def available(self) -> str | None:
        """None, or why kernels can't be compiled here."""
        from localllm.backends.cpu.target import current

        try:
            current()
        except LocalLLMError as error:
            return str(error)
        return None

    def missing(self, program: Program, source: TensorSource) -> Sequence[str]:
        """Tensor types that have no kernel; every operation has one."""
        return sorted({source.tensors[name].type for name in program.shapes} - set(NAMES))

    def memory(self, program: Program, source: TensorSource, options: Options) -> int:
        """Bytes of the packed weights and the registers."""
        rows = capacities(program, options.batch)
        registers = sum(4 * padded(width) * rows[name] for name, width in program.widths.items())
        return total_bytes(program, source) + registers

    def cache(self, program: Program, source: TensorSource, options: Options) -> Mapping[int, int]:
        """Bytes of keys and values by window."""
        types = cache_types(options, "f16")
        floats = float_keys(program, types[0], lambda name: read_vector(source, name))
        return {kind.window: kind.page_bytes // TILE for kind in kinds(program, *types, floats)}

    def upload(self, program: Program, source: TensorSource, options: Options, progress: Progress | None = None) -> Weights:
        """Begin to read and pack; ``compile`` waits for the end."""
        return upload(program, source, options, progress)

    def compile(self, program: Program, weights: Weights, options: Options, progress: Progress | None = None) -> CpuSession:
        """Lower to tapes."""
        try:
            return CpuSession(program, weights, options, progress)
        except BaseException:
            weights.loading.stop()
            raise


def backend() -> CpuBackend:
    """The backend, for the registry."""
    return CpuBackend()
