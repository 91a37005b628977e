from __future__ import annotations

import numpy as np
import pytest

from localllm.generation.speculation.costs import SIZES, Costs, size_of

TRUE = {1: 1.0, 2: 1.05, 4: 1.7, 8: 2.4, 16: 5.0}


def taught(passes: int, level: float = 0.05, seed: int = 0) -> Costs:
    rng = np.random.default_rng(seed)
    costs = Costs()
    for n in range(passes):
        m = int(rng.integers(1, 17)) if n % 2 else 1
        costs.took(m, level * TRUE[size_of(m)] * float(np.exp(rng.normal(0, 0.03))))
    return costs


def test_sizes_are_the_columns_of_kernels() -> None:
    assert [size_of(m) for m in (1, 2, 3, 4, 5, 8, 9, 16)] == [1, 2, 4, 4, 8, 8, 16, 16]


def test_what_passes_cost_is_learnt() -> None:
    costs = taught(200)
    assert costs.passes == 200
    for m in range(1, 17):
        assert costs.seconds(m) == pytest.approx(0.05 * TRUE[size_of(m)], rel=0.1)


def test_a_slower_machine_is_slower_for_all_sizes() -> None:
    costs = taught(200)
    for _ in range(40):
        costs.took(4, 0.1 * TRUE[4])
    for m in SIZES:
        assert costs.seconds(m) == pytest.approx(0.1 * TRUE[m], rel=0.25)


def test_an_interrupted_pass_changes_little() -> None:
    costs = taught(200)
    before = costs.seconds(1), costs.seconds(8)
    costs.took(1, 10.0)
    costs.took(8, 10.0)
    assert (costs.seconds(1), costs.seconds(8)) == pytest.approx(before, rel=0.12)


def test_m_tokens_cost_no_more_than_m_passes_and_no_less_than_one() -> None:
    costs = taught(50)
    for _ in range(50):
        costs.took(2, 9.0)
        costs.took(8, 1e-6)
        costs.took(1, 0.05)
    assert costs.ratios[2] <= 2 and costs.ratios[8] >= 1


def test_what_was_measured_wrongly_is_tried_again() -> None:
    costs = Costs()
    costs.took(1, 0.05)
    costs.took(2, 0.1)  # twice a pass of one: nobody would choose two
    assert costs.ratios[2] > 1.5
    for _ in range(1000):
        costs.took(1, 0.05)
    assert costs.ratios[2] < 1.2


def test_before_the_first_pass_somebody_else_says_what_one_takes() -> None:
    assert Costs().seconds(1, 0.02) == 0.02
    assert Costs().seconds(4, 0.02) > 0.02


def test_long_passes_count_by_the_token() -> None:
    costs = taught(100)
    for _ in range(20):
        costs.took(500, 0.05 * 500 * 0.03)
    assert costs.seconds(1000) == pytest.approx(0.05 * 1000 * 0.03, rel=0.05)
    assert costs.seconds(17) >= costs.seconds(16)


def test_larger_passes_are_approached_step_by_step() -> None:
    costs = Costs()
    assert costs.reach == 0
    for m, reach in ((1, 2), (2, 4), (3, 8), (8, 16), (16, 16)):
        costs.took(m, 0.05 * m)
        assert costs.reach == reach
    assert Costs().ratios[16] < 3


def test_what_was_never_measured_goes_on_as_steeply() -> None:
    costs = Costs()
    costs.took(1, 0.05)
    costs.took(2, 0.1)
    assert costs.ratios[4] == pytest.approx(4) and costs.ratios[16] == pytest.approx(16)
