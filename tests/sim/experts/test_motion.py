"""Grasps of rims, and the clearance of a gripper from the rack."""

import numpy as np
import pytest

from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.experts.dish_experts import (
    WHOLE,
    BowlOnRackExpert,
    PlateOnRackExpert,
    Slot,
    along,
    clear_of_rack,
    standing,
)
from stringline.sim.experts.motion import rim_grasps
from stringline.sim.tasks.dish_tasks import BowlOnRack, PlateOnRack

AWAY = np.diag([-1.0, -1.0, 1.0])
DOWN = rotation_about((0.0, 1.0, 0.0), np.pi / 2)  # The gripper points down.


def test_rim_grasps_point_inwards_and_down_at_the_rim() -> None:
    grasps = rim_grasps(
        0.05, 0.04, azimuths_deg=(-120.0, 0.0, 75.0), pitches_deg=(60.0, 90.0), depth=0.01
    )
    assert len(grasps) == 3 * 2 * 2
    for grasp in grasps:
        forwards, across = grasp.T_prop_gripper[:3, 0], grasp.T_prop_gripper[:3, 1]
        at_rim = grasp.T_prop_gripper[:3, 3] - 0.01 * forwards
        radial = np.array([at_rim[0], at_rim[1], 0.0]) / 0.05
        np.testing.assert_allclose(np.linalg.norm(radial), 1.0, atol=1e-12)
        np.testing.assert_allclose(at_rim[2], 0.04, atol=1e-12)
        assert -1 - 1e-9 <= forwards[2] <= -np.sin(np.radians(60.0)) + 1e-9
        assert forwards @ radial <= 1e-9
        # The pads close across the wall, not along the rim.
        np.testing.assert_allclose(across @ np.cross(radial, (0.0, 0.0, 1.0)), 0.0, atol=1e-12)
        np.testing.assert_allclose(
            grasp.T_prop_gripper[:3, :3].T @ grasp.T_prop_gripper[:3, :3], np.eye(3), atol=1e-12
        )


@pytest.mark.parametrize(
    ("x", "y", "z", "turn", "clear"),
    [
        (0.0, 0.11, 0.3, DOWN, True),  # High above the bay.
        (0.0, 0.11, 0.06, DOWN, False),  # Its fingers are in the bay.
        (0.0, -0.11, 0.13, DOWN, False),  # Above the wall's height, but among the tines.
        (-0.3, 0.0, 0.02, DOWN, True),  # Beside the rack.
        (
            -0.26,
            0.1,
            0.03,
            AWAY,
            False,
        ),  # Its fingers are beside the rack, but its hand is in the wall.
    ],
)
def test_a_gripper_is_clear_of_the_rack_or_not(
    x: float, y: float, z: float, turn: Matrix, clear: bool
) -> None:
    assert clear_of_rack(BowlOnRack(), pose((x, y, z), turn), WHOLE) is clear


@pytest.mark.parametrize("facing", [-1.0, 1.0])
@pytest.mark.parametrize("elevation", [0.0, 0.5, 1.3])
def test_a_released_plate_is_just_above_the_floor_of_its_slot(
    facing: float, elevation: float
) -> None:
    task, radial = PlateOnRack(), np.array([np.cos(0.7), np.sin(0.7), 0.0])
    T_rack_plate = standing(task, Slot(float(task.rack.slots[2]), 0.01, facing, elevation), radial)
    lowest = float((task.edges @ T_rack_plate[2, :3] + T_rack_plate[2, 3]).min())
    assert 0 < lowest - task.rack.floor < 0.005
    T_rack_plate[2, 3] -= lowest - task.rack.floor
    assert task.on_rack(T_rack_plate)
    grip = T_rack_plate[:3, :3] @ radial
    np.testing.assert_allclose(grip, (np.cos(elevation), 0.0, np.sin(elevation)), atol=1e-12)
    np.testing.assert_allclose(T_rack_plate[:3, 2], (0.0, facing, 0.0), atol=1e-12)


def test_lines_pass_all_their_poses() -> None:
    poses = [pose((0.0, 0.0, 0.0)), pose((0.8, 0.0, 0.0), DOWN), pose((0.8, 0.4, 0.0), DOWN)]
    steps = along(*poses)
    assert len(steps) == 16
    np.testing.assert_allclose(steps[7], poses[1], atol=1e-12)
    np.testing.assert_allclose(steps[15], poses[2], atol=1e-12)
    np.testing.assert_allclose(steps[0][:3, 3], (0.1, 0.0, 0.0), atol=1e-12)


def test_paces_out_of_range_are_refused() -> None:
    for expert in (BowlOnRackExpert, PlateOnRackExpert):
        with pytest.raises(ValueError, match=r"paces is \(0\.1, 1\.0\); allowed"):
            expert((0.1, 1.0))
