from __future__ import annotations

import numpy as np
import pytest

from localllm.errors import OptionError
from localllm.quant.bits import f16, pack, reciprocal, round_away, unpack


def test_unpack_takes_planes_of_runs() -> None:
    packed = np.array([[0x21, 0x43, 0x65, 0x87]], np.uint8)
    assert unpack(packed, run=2, bits=4).tolist() == [[1, 3, 2, 4, 5, 7, 6, 8]]
    assert unpack(packed, run=4, bits=4).tolist() == [[1, 3, 5, 7, 2, 4, 6, 8]]
    assert unpack(packed[:, :1], run=1, bits=2).tolist() == [[1, 0, 2, 0]]
    assert unpack(packed[:, :1], run=1, bits=1).tolist() == [[1, 0, 0, 0, 0, 1, 0, 0]]
    assert unpack(packed[:, :2], run=2, bits=1).tolist() == [[1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0]]


@pytest.mark.parametrize("run", [1, 2, 8])
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_pack_is_the_inverse(run: int, bits: int) -> None:
    packed = np.random.default_rng(0).integers(0, 256, (5, 8), np.uint8)
    np.testing.assert_array_equal(pack(unpack(packed, run, bits), run, bits), packed)


def test_halves_round_away_from_zero() -> None:
    below = np.nextafter(np.float32(0.5), np.float32(0))
    values = np.array([0.5, -0.5, 1.5, -2.5, below, -below, 8388607.5], np.float32)
    assert round_away(values).tolist() == [1, -1, 2, -3, 0, 0, 8388608]


def test_reciprocals_that_are_not_finite_are_zero() -> None:
    values = np.array([4, 0, -0.0, 1e-45, np.inf, np.nan], np.float32)
    assert reciprocal(values).tolist() == [0.25, 0, 0, 0, 0, 0]


def test_scales_keep_within_float16() -> None:
    assert f16(np.array([65504, 1e-9], np.float32)).tolist() == [65504, 0]
    with np.errstate(over="ignore"), pytest.raises(OptionError, match="a scale of 70000 is needed"):
        f16(np.array([1, -70000], np.float32))
