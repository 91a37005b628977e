"""The size of the crew follows what the machine has to give."""

from __future__ import annotations

from localllm.backends.cpu.crew import Crew


class World:
    """Jobs take ``alone`` seconds of one thread, shared by all; while ``busy``, more than one thread takes ``stuck``."""

    def __init__(self, most: int) -> None:
        self.now, self.busy = 0.0, False
        self.crew = Crew(most, lambda: self.now)
        self.sizes: list[int] = []

    def run(self, jobs: int, alone: float = 0.02, stuck: float = 0.05) -> list[int]:
        sizes = []
        for _ in range(jobs):
            size = self.crew.size
            seconds = stuck if self.busy and size > 1 else alone / size
            self.now += seconds
            self.crew.took(seconds)
            sizes.append(size)
        return sizes


def test_all_threads_where_nothing_is_wrong() -> None:
    assert set(World(4).run(500)) == {4}


def test_fewer_while_another_process_holds_a_core_and_all_again_afterwards() -> None:
    world = World(2)
    world.run(50)
    world.busy = True
    assert world.run(40)[4:30] == [1] * 26
    sizes = world.run(1000)
    assert sizes.count(2) < 40  # tried again, at longer and longer distances
    world.busy = False
    world.run(400)
    assert set(world.run(100)) == {2}


def test_jobs_that_grow_longer_are_no_trouble() -> None:
    world = World(2)
    sizes = [size for n in range(300) for size in world.run(1, alone=0.02 * (1 + n / 300))]
    assert set(sizes) == {2}


def test_a_single_thread_stays_one() -> None:
    assert set(World(1).run(20)) == {1}
