"""Observations from driver states and frames: their content, and poses of a moving camera."""

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import ALOHA, ArmState, Camera
from stringline.datasets.contract.contract import Array, check_observation
from stringline.real_robot.recording.observation_bridge import ObservationAssembler, position_at

CONTRACT = ALOHA.contract([Camera("wrist_left", 4, 4, "measured"), Camera("overhead", 4, 4)], 50.0)


def state(time: float, position: NDArray[np.float64]) -> ArmState:
    calm = np.zeros(14)
    return ArmState(
        time,
        position,
        calm,
        calm,
        np.zeros(18, np.uint8),
        np.zeros(18, np.int32),
        np.zeros(2, np.bool_),
    )


def frames(time: float) -> dict[str, Array]:
    made: dict[str, Array] = {"depth/wrist_left": np.zeros((4, 4), np.uint16)}
    for name in ("wrist_left", "overhead"):
        made[f"rgb/{name}"] = np.zeros((4, 4, 3), np.uint8)
        made[f"intrinsics/{name}"] = np.eye(3, dtype=np.float32)
        made[f"time/{name}"] = np.asarray(time)
    return made


@pytest.fixture
def moving() -> list[ArmState]:
    return [state(0.1 * step, ALOHA.home + 0.05 * step) for step in range(5)]


def test_an_observation_is_one_of_the_contract(moving: list[ArmState]) -> None:
    built = ObservationAssembler(CONTRACT, ALOHA).build(moving[-1], moving[:-1], frames(0.4))
    check_observation(built, CONTRACT)
    expected = ALOHA.forward_kinematics(moving[-1].position)["right"]
    assert np.allclose(built["T_base_gripper/right"], expected, atol=1e-6)


def test_a_wrist_camera_is_where_it_was_when_the_image_was_taken(moving: list[ArmState]) -> None:
    built = ObservationAssembler(CONTRACT, ALOHA).build(moving[-1], moving[:-1], frames(0.25))
    then = ALOHA.camera_poses(ALOHA.home + 0.125)["wrist_left"]
    now = ALOHA.camera_poses(moving[-1].position)["wrist_left"]
    assert np.allclose(built["T_base_camera/wrist_left"], then, atol=1e-6)
    assert not np.allclose(then, now, atol=1e-3)


def test_positions_are_interpolated_and_not_extrapolated(moving: list[ArmState]) -> None:
    assert np.allclose(position_at(0.37, moving), ALOHA.home + 0.185)
    assert np.array_equal(position_at(-1.0, moving), moving[0].position)
    assert np.array_equal(position_at(9.0, moving), moving[-1].position)


def test_a_missing_frame_is_named(moving: list[ArmState]) -> None:
    assembler = ObservationAssembler(CONTRACT, ALOHA)
    partial = {key: value for key, value in frames(0.4).items() if "overhead" not in key}
    assert assembler.oldest_frame(partial, 0.5) == (np.inf, "overhead")
    with pytest.raises(ValueError, match="no observation key 'rgb/overhead'"):
        assembler.build(moving[-1], moving, partial)


def test_the_contract_must_be_of_that_embodiment() -> None:
    with pytest.raises(ValueError, match="The contract has other joints than aloha"):
        ObservationAssembler(dataclasses.replace(CONTRACT, joints=("a",)), ALOHA)
