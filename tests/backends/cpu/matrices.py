"""Packed matrices and quantised activations for tests of the kernels around them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localllm import quant
from localllm.backends.cpu.arguments_matmul import EMBED, MATMUL, QUANTISE, REPACK
from localllm.backends.cpu.layout import FLOATS, GROUP, LAYOUTS, MANY, SPAN, X_BLOCK, X_STEP, activation_bytes, padded
from localllm.backends.cpu.records import ROWS, TOKENS, float_bits
from localllm.backends.cpu.weights import pack_kernel
from tests.backends.cpu.driver import Driver, Register

Float = NDArray[np.float32]


@dataclass
class Packed:
    """A matrix in the packed form, and the values that it stands for."""

    layout: str
    rows: int
    columns: int
    address: int
    values: Float

    @property
    def records(self) -> int:
        """What a row consists of."""
        return self.columns if self.layout in FLOATS else self.columns // LAYOUTS[self.layout].qk

    @property
    def groups(self) -> int:
        """Groups of 64 rows."""
        return -(-self.rows // 64)


def blocks(kind: str, rows: int, columns: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows in a storage format: quantised where the format has a quantiser, else random bits with sane scales."""
    rng = np.random.default_rng(seed)
    if quant.format(kind).quantize:
        return quant.quantize(rng.standard_normal((rows, columns)).astype(np.float32), kind)
    info = quant.base.by_name(kind)
    raw = rng.integers(0, 256, (rows, columns // info.block_size, info.block_bytes), dtype=np.uint8)
    scale = (rng.random(raw.shape[:2]).astype(np.float16) * np.float16(0.1)).view(np.uint8).reshape(*raw.shape[:2], 2)
    if kind == "IQ1_M":  # its scale is spread over the upper nibbles of four words
        raw[..., -8:] = np.array([0x11, 0x01, 0x11, 0x01, 0x11, 0x01, 0x11, 0x21], np.uint8)
    else:
        raw[..., :2] = scale
    return raw.reshape(rows, -1)


def pack(driver: Driver, kind: str, raw: NDArray[np.uint8]) -> Packed:
    """Rows of the file to the packed form, by the kernel."""
    values, rows = quant.dequantize(raw, kind), len(raw)
    columns = values.shape[1]
    size = padded(rows) * columns * FLOATS[kind] if kind in FLOATS else LAYOUTS[kind].packed_bytes(rows, columns)
    memory = driver.alloc(size)
    memory[:] = 0
    driver._kept.append(memory)
    packed = Packed(kind, rows, columns, memory.ctypes.data, values)
    words = {"src": driver.address(raw, np.uint8), "row_bytes": raw.shape[1], "rows": rows, "records": packed.records}
    driver.run(pack_kernel(kind), REPACK, {**words, "dst": packed.address})
    return packed


def embed(driver: Driver, matrix: Packed, tokens: list[int], scale: float = 1.0) -> Float:
    """Rows of a packed matrix, by the kernel."""
    out = driver.empty(len(tokens), matrix.columns)
    state = driver.state({ROWS: len(tokens), TOKENS: driver.address(tokens, np.int64)})
    words = {"w": matrix.address, "records": matrix.records, "scale": float_bits(scale), **out.words("out")}
    driver.run(("embed", "rows", matrix.layout), EMBED, words, state)
    return out.data


def quantise(driver: Driver, x: Register, n: int, norm: tuple[int, float, Register] | None = None) -> tuple[int, NDArray[np.uint8]]:
    """Column tiles of n rows: their address and bytes. ``norm``: weight, eps and the register of the normed rows."""
    rows, columns = x.data.shape
    memory = driver.alloc(-(-rows // n) * activation_bytes(columns, n))
    driver._kept.append(memory)
    weight, eps, normed = norm or (0, 0.0, x)
    words = {**x.words("x"), **normed.words("normed"), "norm": weight, "n": columns, "eps": float_bits(eps), "blocks": columns // 32}
    words |= {"out": memory.ctypes.data, "out_bytes": activation_bytes(columns, n), "rows": driver.count(rows)}
    driver.run(("quantise", "rows", n), QUANTISE, words)
    return memory.ctypes.data, memory


def rounded(driver: Driver, x: Register) -> NDArray[np.float64]:
    """What quantised rows stand for, in float64."""
    rows, columns = x.data.shape
    _, memory = quantise(driver, x, 1)
    blocks = memory.reshape(rows, columns // 32, X_BLOCK)
    steps = blocks[:, :, X_STEP : X_STEP + 4].copy().view(np.float32).astype(np.float64)
    exact: NDArray[np.float64] = (blocks[:, :, :32].view(np.int8) * steps).reshape(rows, columns)
    return exact


def multiply(driver: Driver, matrix: Packed, x: Register, n: int, init: Register | None = None) -> Register:
    """x @ matrix^T + init, with column tiles of n (MANY: unpacked once for all)."""
    rows = len(x.data)
    out = driver.empty(-(-rows // MANY) * MANY, padded(matrix.rows))
    floats = matrix.layout in FLOATS
    address, stride = (x.address, x.stride) if floats else (quantise(driver, x, n)[0], activation_bytes(matrix.columns, n))
    module = "floats" if floats else "matmul"
    kernel = (module, "many", matrix.layout) if n == MANY else (module, "few", matrix.layout, min(n, 4) if floats else n)
    start = init.words("init") if init else {"init": driver.address(np.zeros(padded(matrix.rows)), np.float32), "init_stride": 0}
    words = {"w": matrix.address, "records": matrix.records, "x": address, "x_bytes": stride, "groups": matrix.groups, **start}
    scratch = 4 * GROUP * SPAN if floats else 4 * matrix.columns // 32 * LAYOUTS[matrix.layout].unpacked_bytes
    record = {**words, **out.words("out"), "rows": driver.count(rows)}
    driver.run(kernel, MATMUL, record, driver.state(scratch=scratch))
    return Register(out.all, out.all[:rows, : matrix.rows])
