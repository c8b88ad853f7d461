"""Grasps of bars are on the arm's own side, and quarter turns of a square bar are equal."""

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.transforms import pose, rotation_about
from stringline.sim.experts.insertion_experts import FORWARDS, BarGrasp, end_grasps, nearest_turn

X, Y, Z = np.eye(3)
FLIPPED = rotation_about(Z, np.pi)


@pytest.mark.parametrize("arm", ARMS)
def test_ends_are_taken_from_the_arms_own_side_whichever_way_the_bar_lies(arm: str) -> None:
    for turn in (
        np.eye(3),
        FLIPPED,
        rotation_about(X, np.pi / 2),
        FLIPPED @ rotation_about(X, -np.pi / 2),
    ):
        T_base_bar = pose((0.05, 0.1, 0.02), rotation_about(Z, 0.3) @ turn)
        for grasp in end_grasps(T_base_bar, BarGrasp(arm, 0.04, 0.3)):
            T_base_gripper = T_base_bar @ grasp.T_prop_gripper
            assert (T_base_gripper[:3, 3] - T_base_bar[:3, 3]) @ FORWARDS[arm] < -0.03
            assert T_base_gripper[2, 0] < -0.8
            assert T_base_gripper[2, 2] > 0.3
            np.testing.assert_allclose(T_base_gripper[:3, 1] @ T_base_bar[:3, 0], 0.0, atol=1e-9)


def test_the_nearest_turn_of_a_square_bar_leaves_less_than_an_eighth() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        tilt = rotation_about(rng.permutation(np.eye(3))[0], rng.uniform(-0.7, 0.7))
        square = rotation_about(X, rng.integers(4) * np.pi / 2) @ (
            FLIPPED if rng.uniform() < 0.5 else np.eye(3)
        )
        np.testing.assert_allclose(nearest_turn(tilt @ square), square, atol=1e-12)
