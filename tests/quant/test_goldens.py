"""The recorded files of every type, which llama.cpp quantised from the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from localllm import quant
from localllm.gguf import open_gguf
from localllm.quant.blocks import Float

# RMS difference from the Q8_0 file's weights over their own RMS, a little above what was measured.
ERRORS = {
    "Q4_0": 0.096,
    "Q4_1": 0.085,
    "Q5_0": 0.048,
    "Q5_1": 0.042,
    "Q8_0": 0.0,
    "Q2_K": 0.32,
    "Q3_K": 0.165,
    "Q4_K": 0.078,
    "Q5_K": 0.04,
    "Q6_K": 0.021,
    "IQ1_S": 0.53,
    "IQ1_M": 0.49,
    "IQ2_XXS": 0.37,
    "IQ2_XS": 0.32,
    "IQ2_S": 0.27,
    "IQ3_XXS": 0.195,
    "IQ3_S": 0.15,
    "IQ4_NL": 0.082,
    "IQ4_XS": 0.083,
    "TQ1_0": 0.86,
    "TQ2_0": 0.86,
    "MXFP4": 0.123,
    "NVFP4": 0.097,
    "Q1_0": 0.64,
    "Q2_0": 0.76,
}


def _weights(path: Path) -> dict[str, tuple[str, Float]]:
    with open_gguf(path) as file:
        return {name: (info.type, quant.dequantize(file.read(name), info.type)) for name, info in file.tensors.items()}


@pytest.mark.parametrize("name", ERRORS)
def test_files_of_every_block_format_hold_the_same_weights(goldens: Path, name: str) -> None:
    reference = _weights(goldens / "tiny" / "quant-q8_0-31.gguf")
    found = _weights(goldens / "tiny" / f"quant-{name.lower()}-31.gguf")
    assert found.keys() == reference.keys()
    assert [type for type, _ in found.values()].count(name) >= 7
    for tensor, (type, values) in found.items():
        expected = reference[tensor][1]
        error = np.sqrt(np.mean((values - expected) ** 2) / np.mean(expected**2))
        assert error <= (ERRORS[type] if type == name else 0.0), tensor


@pytest.mark.parametrize(("name", "error"), [("F16", 2**-11), ("BF16", 2**-8)])
def test_files_of_short_floats_hold_the_same_weights(goldens: Path, name: str, error: float) -> None:
    reference = _weights(goldens / "tiny" / "quant-f32-31.gguf")
    for tensor, (_, values) in _weights(goldens / "tiny" / f"quant-{name.lower()}-31.gguf").items():
        np.testing.assert_allclose(values, reference[tensor][1], rtol=error, atol=1e-7)


def test_ternary_files_hold_equal_values(goldens: Path) -> None:
    first, second = (_weights(goldens / "tiny" / f"quant-{name}-31.gguf") for name in ("tq1_0", "tq2_0"))
    for tensor, (_, values) in first.items():
        np.testing.assert_array_equal(values, second[tensor][1])
