"""The size of the crew follows what the machine has to give."""

from __future__ import annotations

import pytest

from localllm.backends.cpu.crew import Crew


class World:
    """Jobs take ``alone`` seconds of one thread, shared by all; while ``busy``, more than one thread takes ``stuck``, half of it asleep."""

    def __init__(self, most: int) -> None:
        self.now, self.busy = 0.0, False
        self.crew = Crew(most, lambda: self.now)

    def run(self, jobs: int, alone: float = 0.02, stuck: float = 0.05, hiccup: int = 0) -> list[int]:
        """The sizes of the crew; every so many jobs, one takes longer for another reason."""
        sizes = []
        for i in range(jobs):
            size = self.crew.size
            held = self.busy and size > 1
            seconds = stuck if held else alone / size
            computed = seconds / 2 if held else seconds
            if hiccup and i % hiccup == hiccup - 1:
                seconds += 0.05
            self.now += seconds
            self.crew.took(seconds, computed)
            sizes.append(size)
        return sizes


def test_all_threads_where_nothing_is_wrong() -> None:
    assert set(World(4).run(500)) == {4}


@pytest.mark.parametrize("stuck", [0.025, 0.2])
def test_fewer_while_another_process_holds_a_core_and_all_again_afterwards(stuck: float) -> None:
    world = World(2)
    world.run(50)
    world.busy = True
    assert world.run(40, stuck=stuck)[15:].count(2) <= 4
    sizes = world.run(1000, stuck=stuck)
    assert 0 < sizes.count(2) < 30  # tried again, at longer and longer distances
    world.busy = False
    world.run(400)
    assert set(world.run(100)) == {2}


def test_held_from_the_first_job_on() -> None:
    world = World(2)
    world.busy = True
    assert world.run(40, stuck=0.025)[15:].count(2) < 3


def test_a_larger_crew_is_kept_where_a_smaller_one_is_no_faster() -> None:
    world = World(2)
    world.busy = True
    assert world.run(2000, stuck=0.018).count(1) < 40


def test_a_long_job_now_and_then_costs_next_to_nothing() -> None:
    world = World(2)
    assert world.run(1000, hiccup=50).count(1) <= 12


def test_jobs_that_grow_longer_are_no_trouble() -> None:
    world = World(2)
    sizes = [size for n in range(300) for size in world.run(1, alone=0.02 * (1 + n / 300))]
    assert set(sizes) == {2}


def test_a_single_thread_stays_one() -> None:
    assert set(World(1).run(20)) == {1}
