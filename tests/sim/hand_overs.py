"""Shared helpers of the tests of hand-overs into a container."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from tests.sim.episodes import follow, place_at, stay

from stringline import Matrix, TaskEnvironment, Vector, pose, record_episode, rotation_about
from stringline.sim.environment.environment import StepResult
from stringline.sim.experts.expert_registry import Expert
from stringline.sim.tasks.hand_over_tasks import HandOverTask


@dataclass(frozen=True)
class HandOvers:
    """The open world of a hand-over task, and the class of its expert.

    Attributes:
        rest: (J,), joints at which the arms do not touch the props.
    """

    world: TaskEnvironment
    task: HandOverTask
    expert: Callable[..., Expert[TaskEnvironment]]
    rest: Vector

    def run(self, seed: int, until: Callable[[StepResult], bool]) -> None:
        """Runs the expert until a condition holds."""
        results, _ = follow(self.world, self.expert(paces=(0.75, 0.75)), seed, until)
        assert until(results[-1])

    def put(self, T_container_item: Matrix, seconds: float = 1.2) -> StepResult:
        """Puts the item relative to the container, with the arms at rest, and waits for success."""
        place_at(self.world, self.task.item, self.task.container, T_container_item)
        return stay(self.world, self.rest, seconds)

    def poses(self) -> tuple[Matrix, Matrix]:
        """Returns the poses (4, 4) of item and container."""
        physics = self.world.physics
        return self.task.pose(physics, self.task.item), self.task.pose(physics, self.task.container)

    def assert_inside(
        self, T_base_container: Matrix, T_container_item: Matrix, inside: bool
    ) -> None:
        """Asserts that a pose is inside an upright container or not, and never a tipped one."""
        assert self.task.inside(T_base_container @ T_container_item, T_base_container) is inside
        tipped = pose((0.0, 0.0, 0.1), rotation_about((1.0, 0.0, 0.0), np.radians(30)))
        assert not self.task.inside(tipped @ T_container_item, tipped)

    def assert_nothing_without_a_hand_over(self, T_container_item: Matrix) -> None:
        """Asserts that an item in the container does not count without a hand-over."""
        self.world.begin(0)
        result = self.put(T_container_item)
        assert self.task.inside(*self.poses())
        assert (result.success, result.stage) == (False, 0)

    def assert_only_the_container_counts(self, inside: Matrix, beside: Matrix) -> None:
        """Asserts that after the hand-over an item counts inside, unless it was beside before.

        The poses (4, 4) are in the container's frame.
        """
        self.run(1, lambda result: result.stage == 2)
        state = self.world.physics.get_state()
        result = self.put(inside, seconds=3.0)
        assert (result.success, result.stage) == (True, 4)
        self.run(1, lambda result: result.stage == 2)
        np.testing.assert_array_equal(self.world.physics.get_state(), state)
        fallen = self.put(beside)
        assert (fallen.success, fallen.stage) == (False, 2)
        assert not self.put(inside).success

    def assert_starts(
        self, lowest: ArrayLike, highest: ArrayLike, of: Callable[[Matrix, Matrix], list[float]]
    ) -> None:
        """Asserts that values of the poses of item and container at starts fill their range."""
        low, high = np.asarray(lowest), np.asarray(highest)
        found = []
        for seed in range(60):
            self.world.begin(seed)
            found.append(of(*self.poses()))
        least, most = np.min(found, axis=0), np.max(found, axis=0)
        assert (least >= low - 1e-6).all()
        assert (most <= high + 1e-6).all()
        assert (most - least > 0.8 * (high - low)).all()
        self.world.advance(self.rest)
        assert self.task.at_rest(self.world.physics)

    def assert_the_expert_succeeds(self, seed: int, slip_m: float, height: float) -> None:
        """Asserts that the expert passes all stages, with a slip and a table of another height."""
        recording = record_episode(
            self.world, self.expert(), seed, slip_m=slip_m, options={"table_height": height}
        )
        assert recording.success, recording.error
        stages = recording.arrays["stage"].tolist()
        assert set(stages) >= {0, 1, 2, 3}
        assert stages == sorted(stages)


def place_and_yaw(T: Matrix) -> list[float]:
    """Returns x and y of a pose in metres, and its yaw in degrees."""
    return [*T[:2, 3], float(np.degrees(np.arctan2(T[1, 0], T[0, 0])))]
