"""What holds for every format, and the public functions of localllm.quant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from localllm import quant
from localllm.errors import OptionError, UnsupportedError
from localllm.quant.base import REMOVED, TYPES, by_id, by_name
from tests.quant.oracle import random_blocks, same

QUANTIZABLE = [name for name in quant.NAMES if quant.format(name).quantize is not None]

# RMS error over the deviation of normally distributed values, a little above what was measured.
ERRORS = {
    "F32": 0.0,
    "F16": 0.00022,
    "BF16": 0.0018,
    "Q4_0": 0.09,
    "Q4_1": 0.08,
    "Q5_0": 0.045,
    "Q5_1": 0.039,
    "Q8_0": 0.0056,
    "Q2_K": 0.285,
    "Q3_K": 0.16,
    "Q4_K": 0.074,
    "Q5_K": 0.037,
    "Q6_K": 0.0185,
    "IQ4_NL": 0.079,
    "IQ4_XS": 0.08,
    "TQ1_0": 0.84,
    "TQ2_0": 0.84,
    "MXFP4": 0.118,
    "NVFP4": 0.107,
    "Q1_0": 0.62,
    "Q2_0": 0.74,
}


def test_there_is_one_file_and_one_test_for_each_format() -> None:
    files = {path.stem for path in Path(quant.__file__).parent.glob("*.py")}
    tests = {path.stem for path in Path(__file__).parent.glob("*.py")}
    assert {name.lower() for name in quant.NAMES} <= files
    assert {f"test_{name.lower()}" for name in quant.NAMES} <= tests


@pytest.mark.parametrize("name", quant.NAMES)
def test_layout_is_what_the_table_of_types_says(name: str) -> None:
    format = quant.format(name)
    assert format.info == by_name(name)
    assert format.block.itemsize == format.info.block_bytes
    assert quant.format(format.info.id) is format


def test_types_equal_the_gguf_package() -> None:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    assert len({info.id for info in TYPES} | set(REMOVED)) == len(TYPES) + len(REMOVED)
    for kind in GGMLQuantizationType:
        info = by_id(int(kind))
        assert info is by_name(kind.name)
        # The package has another size for Q8_1, which no file holds: ggml's block is two float16 and 32 bytes.
        assert (info.block_size, info.block_bytes) == GGML_QUANT_SIZES[kind] or kind.name == "Q8_1"


@pytest.mark.parametrize("name", quant.NAMES)
def test_leading_axes_pieces_and_strides_change_nothing(name: str) -> None:
    size, width = quant.lookup(name).block_bytes, quant.lookup(name).block_size
    blocks = random_blocks(name, 70_000 // width // 6 * 6 + 6)
    flat = quant.dequantize(blocks, name)
    stacked = quant.dequantize(blocks.reshape(2, 3, -1), name)
    assert stacked.shape == (2, 3, flat.size // 6)
    assert same(stacked.ravel(), flat.ravel()).all()
    assert same(quant.dequantize(blocks[::2], name), flat[::2]).all()
    assert same(quant.dequantize(np.tile(blocks[:4].reshape(1, -1), 2)[:, size : 5 * size], name)[0, :width], flat[1]).all()
    assert quant.dequantize(blocks[:0], name).shape == (0, width)
    assert quant.dequantize(blocks[:, :0], name).shape == (len(blocks), 0)


@pytest.mark.parametrize("name", QUANTIZABLE)
def test_quantised_values_are_near(name: str) -> None:
    values = np.random.default_rng(1).standard_normal((16, 1024)).astype(np.float32) * np.float32(0.02)
    blocks = quant.quantize(values, name)
    assert blocks.dtype == np.uint8 and blocks.shape[0] == 16
    error = np.sqrt(np.mean((quant.dequantize(blocks, name) - values) ** 2)) / values.std()
    assert error <= ERRORS[name]


@pytest.mark.parametrize("name", QUANTIZABLE)
@pytest.mark.parametrize("factor", [1e-30, 1e-6, 1.0, 300.0])
def test_outliers_and_scales(name: str, factor: float) -> None:
    values = np.zeros((3, 256), np.float32)
    values[1, 17] = -factor
    values[2, ::7] = factor
    found = quant.dequantize(quant.quantize(values, name), name)
    assert (found[0] == 0).all()
    assert np.isfinite(found).all()
    # float16 scales lose the smallest values, and Q1_0 knows no zero.
    if factor >= 1 and name != "Q1_0":
        np.testing.assert_allclose(found, values, atol=0.2 * factor)


@pytest.mark.parametrize(
    "name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "Q2_0", "Q2_K", "Q3_K", "Q4_K", "Q6_K", "IQ4_NL"]
)
def test_a_scale_beyond_float16_is_refused(name: str) -> None:
    values = np.linspace(-1e10, 1e9, 256, dtype=np.float32)
    with pytest.raises(OptionError, match="float16"):
        quant.quantize(values, name)


@pytest.mark.parametrize("name", [name for name in QUANTIZABLE if name not in ("F32", "F16", "BF16")])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(name: str, bad: float) -> None:
    values = np.zeros(256, np.float32)
    values[100] = bad
    with pytest.raises(OptionError, match=f"{name} values: NaN or infinity"):
        quant.quantize(values, name)


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_floats_keep_what_is_not_finite(name: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    found = quant.dequantize(quant.quantize(values, name), name)
    assert same(found, values).all()


def test_other_kinds_of_numbers_are_quantised_as_float32() -> None:
    values = np.arange(-32, 32)
    expected = quant.quantize(values.astype(np.float32), "Q8_0")
    for kind in (np.float64, np.float16, np.int64, np.int8):
        np.testing.assert_array_equal(quant.quantize(values.astype(kind), "Q8_0"), expected)


@pytest.mark.parametrize(
    ("type", "message"),
    [
        (99, "tensor type 99 is not known; known are: F32 \\(0\\), F16 \\(1\\)"),
        (-1, "tensor type -1 is not known"),
        (31, "tensor type 31 \\(Q4_0_4_4\\) was removed from GGUF: quantise the model again"),
        ("Q9_K", "tensor type 'Q9_K' is not known; .*Q2_0 \\(42\\)"),
        ("q4_0", "tensor type 'q4_0' is not known"),
        ("I32", "tensor type I32 \\(26\\) is not a format of weights"),
        (15, "tensor type Q8_K \\(15\\) is not a format of weights"),
    ],
)
def test_unknown_types_are_refused(type: str | int, message: str) -> None:
    for call in (lambda: quant.dequantize(np.zeros(32, np.uint8), type), lambda: quant.quantize(np.zeros(32, np.float32), type)):
        with pytest.raises(UnsupportedError, match=message):
            call()


def test_the_table_knows_no_other_types() -> None:
    for id in (*REMOVED, 43, 255, -1):
        with pytest.raises(KeyError):
            by_id(id)
    with pytest.raises(KeyError):
        by_name("q4_0")


def test_formats_without_quantiser_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="quantising to IQ2_XXS is not supported; supported are: F32, F16"):
        quant.quantize(np.zeros(256, np.float32), "IQ2_XXS")


def test_blocks_that_are_none_are_refused() -> None:
    with pytest.raises(OptionError, match="Q4_0 blocks: the last axis has 20 bytes, expected a multiple of 18"):
        quant.dequantize(np.zeros((2, 20), np.uint8), "Q4_0")
    with pytest.raises(OptionError, match=r"Q4_0 blocks: expected a NumPy array of uint8, got float32 \(18,\)"):
        quant.dequantize(np.zeros(18, np.float32), "Q4_0")
    with pytest.raises(OptionError, match="got bytes; use numpy"):
        quant.dequantize(bytes(18), "Q4_0")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="Q4_0 values: the last axis has 33 values, expected a multiple of 32"):
        quant.quantize(np.zeros(33, np.float32), "Q4_0")
    with pytest.raises(OptionError, match="Q4_0 values: expected a NumPy array of floats, got list"):
        quant.quantize([0.0] * 32, "Q4_0")  # type: ignore[arg-type]
