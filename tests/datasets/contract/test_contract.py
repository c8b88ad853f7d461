"""The contract: invalid contents, and descriptions of incompatibilities."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stringline import Camera, Contract
from stringline.datasets.contract.contract import (
    ActionDimension,
    Array,
    check_action,
    check_episode,
    check_observation,
)

CONTRACT = Contract(
    embodiment="post",
    base_frame="its foot",
    control_hz=10.0,
    cameras=(
        Camera(
            "eye", 4, 6, "measured", 0.001, distortion=(0.1, 0.2), distortion_model="brown_conrady"
        ),
        Camera("plain", 4, 4),
    ),
    joints=("post/hinge", "post/gripper"),
    arms=("post",),
    action=(
        ActionDimension("post/hinge", "post", "joint"),
        ActionDimension("post/gripper", "post", "gripper", unit="opening"),
    ),
)
STEPS, FRAMES = 5, 3


def episode() -> dict[str, Array]:
    arrays: dict[str, Array] = {
        "time": np.arange(STEPS) / 10.0,
        "joints/position": np.zeros((STEPS, 2), np.float32),
        "T_base_gripper/post": np.tile(np.eye(4, dtype=np.float32), (STEPS, 1, 1)),
        "action": np.zeros((STEPS, 2), np.float32),
        "depth/eye": np.ones((FRAMES, 4, 6), np.uint16),
    }
    for name, width in (("eye", 6), ("plain", 4)):
        arrays[f"rgb/{name}"] = np.zeros((FRAMES, 4, width, 3), np.uint8)
        arrays[f"time/{name}"] = np.arange(FRAMES) / 5.0
        arrays[f"frame/{name}"] = np.array([0, 0, 1, 1, 2], np.int32)
        arrays[f"intrinsics/{name}"] = np.eye(3, dtype=np.float32)
        arrays[f"T_base_camera/{name}"] = np.eye(4, dtype=np.float32)
    return arrays


def observation() -> dict[str, Array]:
    arrays = episode()
    fixed = ("intrinsics", "T_base_camera")
    return {
        key: value if key.startswith(fixed) else value[0]
        for key, value in arrays.items()
        if not key.startswith("frame/")
    }


def test_plain_data_round_trip() -> None:
    assert Contract.from_dict(json.loads(json.dumps(CONTRACT.to_dict()))) == CONTRACT


def test_plain_data_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"The contract is invalid: .*control_hz"):
        Contract.from_dict(
            {key: value for key, value in CONTRACT.to_dict().items() if key != "control_hz"}
        )


def test_valid_data_is_accepted() -> None:
    check_observation(observation(), CONTRACT)
    check_episode(episode(), CONTRACT)
    moving = episode() | {"T_base_camera/eye": np.tile(np.eye(4, dtype=np.float32), (FRAMES, 1, 1))}
    check_episode(moving, CONTRACT)
    assert CONTRACT.incompatibilities(CONTRACT) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("time", np.zeros(STEPS), r"time does not increase at step 1"),
        ("time", np.array([]), r"at least one step"),
        ("rgb/eye", np.zeros((FRAMES, 4, 6, 3), np.float32), "rgb/eye has type float32"),
        ("rgb/eye", np.zeros((FRAMES, 6, 4, 3), np.uint8), r"rgb/eye has shape \(3, 6, 4, 3\)"),
        ("depth/eye", np.ones((FRAMES, 4, 6), np.float32), "depth/eye has type float32"),
        (
            "action",
            np.full((STEPS, 2), np.nan, np.float32),
            r"action is not finite at index \(0, 0\)",
        ),
        ("frame/eye", np.full(STEPS, 7, np.int32), "frame/eye points at frames 7 to 7"),
        ("reward", np.zeros(2), r"reward has 2 steps, time has 5"),
        ("series/force", np.zeros((4, 3)), r"series/force has shape .* allowed: \(5, 3\)"),
        ("series/force", np.zeros(5, int), "series/force has type int64; allowed: float32 and"),
        ("series/force", np.full(5, np.nan), "series/force is not finite at index"),
    ],
)
def test_invalid_episodes(key: str, value: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_episode(episode() | {key: value}, CONTRACT)


@pytest.mark.parametrize(
    "key", ["action", "T_base_gripper/post", "depth/eye", "rgb/plain", "joints/position"]
)
def test_missing_keys_are_named(key: str) -> None:
    arrays = episode()
    del arrays[key]
    with pytest.raises(ValueError, match=f"no episode key '{key}'"):
        check_episode(arrays, CONTRACT)


def test_state_alone_can_be_checked() -> None:
    state = {
        key: value
        for key, value in observation().items()
        if "eye" not in key and "plain" not in key
    }
    check_observation(state, CONTRACT, cameras=False)
    with pytest.raises(ValueError, match=r"no observation key 'rgb/eye'"):
        check_observation(state, CONTRACT)


def test_actions() -> None:
    check_action(np.zeros((7, 2)), CONTRACT)
    with pytest.raises(ValueError, match=r"2 dimensions \(last axis\); got shape \(3,\)"):
        check_action(np.zeros(3), CONTRACT)
    with pytest.raises(ValueError, match=r"not finite at 'post/gripper'"):
        check_action(np.array([0.0, np.inf]), CONTRACT)


def test_incompatibilities_are_sentences() -> None:
    other = replace(
        CONTRACT,
        embodiment="pole",
        joints=("post/hinge",),
        cameras=(Camera("eye", 4, 6, has_geometry=False),),
    )
    found = CONTRACT.incompatibilities(other)
    assert found[0] == "embodiment: 'post' is required, 'pole' is offered."
    assert any(
        sentence.startswith("joints: 2 (post/hinge, post/gripper) is required, 1 (post/hinge)")
        for sentence in found
    )
    assert any("depth is required, but not offered" in sentence for sentence in found)
    assert any("no camera 'plain'" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"control_hz": 0.0}, r"control_hz must be a number from 0.01 to 10000 \(got 0.0\)"),
        ({"control_hz": 1e-300}, r"control_hz must be a number from 0.01 to 10000 \(got 1e-300\)"),
        (
            {"control_hz": float("inf")},
            r"control_hz must be a number from 0.01 to 10000 \(got inf\)",
        ),
        ({"action": ()}, r"at least one action dimension"),
        ({"cameras": (), "joints": ()}, r"at least one camera or a joint state"),
        ({"joints": ("a", "a")}, r"joint 'a' occurs more than once"),
    ],
)
def test_empty_contracts(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONTRACT, **changes)  # type: ignore[arg-type]


def test_invalid_cameras() -> None:
    with pytest.raises(ValueError, match=r"size 0x4; both must be positive"):
        Camera("eye", 0, 4)
    with pytest.raises(ValueError, match="depth_unit_m is 1; allowed: above 0 and at most 0.001 m"):
        Camera("eye", 4, 4, "measured", 1)


def test_the_contract_needs_neither_torch_nor_mujoco() -> None:
    for file in Path(__file__).parents[3].joinpath("datasets", "contract").glob("*.py"):
        text = file.read_text()
        assert "import torch" not in text
        assert "import mujoco" not in text
