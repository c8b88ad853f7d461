"""Two KUKA arms hand a bar over; success needs the hand-over and all corners in the bin."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.sim.hand_overs import HandOvers, place_and_yaw

from stringline import IIWA14_BIMANUAL, Matrix, TaskEnvironment, pose, rotation_about
from stringline.datasets.contract.contract import check_observation
from stringline.sim.experts.kuka_experts import KukaHandOverExpert
from stringline.sim.tasks.kuka_tasks import KukaHandOver

X, Y, Z = np.eye(3)
ON_FLOOR = 0.005 + 0.014


@pytest.fixture(scope="module")
def bars() -> Iterator[HandOvers]:
    task = KukaHandOver()
    world = TaskEnvironment(task, image_size=16, time_limit_s=40.0)
    yield HandOvers(world, task, KukaHandOverExpert, IIWA14_BIMANUAL.home)
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("T_bin_bar", "inside"),
    [
        (pose((0.0, 0.0, ON_FLOOR)), True),
        (pose((0.02, -0.03, ON_FLOOR), rotation_about(Z, 0.3)), True),
        (pose((0.0, 0.0, ON_FLOOR + 0.012), rotation_about(X, 0.7)), True),
        (pose((0.0, 0.0, 0.06)), False),  # Its upper edges above the rim.
        (pose((0.0, 0.0, 0.07), rotation_about(Z, np.pi / 2)), False),  # Across the rim.
        (pose((0.04, 0.0, ON_FLOOR)), False),  # Through a wall.
        (pose((0.2, 0.0, 0.014)), False),  # Beside it.
        (pose((0.05, 0.0, 0.08), rotation_about(Y, 0.6)), False),  # Leaning over a wall.
    ],
)
def test_a_bar_is_inside_if_all_its_corners_are(
    bars: HandOvers, T_bin_bar: Matrix, inside: bool
) -> None:
    bars.assert_inside(pose((-0.2, 0.05, 0.1), rotation_about(Z, 0.3)), T_bin_bar, inside)


def test_observations_fit_the_contract_of_two_arms(bars: HandOvers) -> None:
    world = bars.world
    observation, _ = world.reset(seed=0)
    check_observation(observation, world.contract)
    assert world.contract.arms == ("left", "right")
    assert world.segments == ("nothing", "table", "left", "right", "bar", "bin")
    assert "wrist_right" in [camera.name for camera in world.contract.cameras]


def test_a_bar_in_the_bin_without_a_hand_over_does_not_count(bars: HandOvers) -> None:
    bars.assert_nothing_without_a_hand_over(pose((0.0, 0.0, ON_FLOOR + 0.001)))


@pytest.mark.slow
def test_after_the_hand_over_the_bar_must_be_in_the_bin(bars: HandOvers) -> None:
    bars.assert_only_the_container_counts(
        pose((0.01, 0.0, ON_FLOOR + 0.001)), beside=pose((0.0, 0.2, 0.015))
    )


def test_starts_fill_their_ranges(bars: HandOvers) -> None:
    lowest, highest = [0.14, -0.14, -40, -0.26, -0.12, -25], [0.26, 0.14, 40, -0.14, 0.12, 25]
    bars.assert_starts(lowest, highest, lambda bar, bin: [*place_and_yaw(bar), *place_and_yaw(bin)])


@pytest.mark.slow
def test_the_expert_hands_over(bars: HandOvers) -> None:
    bars.assert_the_expert_succeeds(2, slip_m=0.02, height=-0.1)
