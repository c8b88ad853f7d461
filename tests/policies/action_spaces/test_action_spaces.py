"""Action spaces: round trips, limits, and statistics of training windows."""

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from tests.policies.demonstrations import CONTRACT, motion
from torch import Tensor

from stringline.datasets.contract.contract import ActionDimension, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.transforms import pose, rotation_about
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.action_spaces.gripper_poses import (
    ForwardKinematics,
    GripperPoses,
    rotation_of,
    six_numbers,
)
from stringline.policies.action_spaces.space import ActionSpace, ContractActions, RelativeJoints
from stringline.policies.algorithms.chunk_policy import ChunkPolicy

OfDemonstrations = Callable[..., ChunkPolicy]
Configuration = Callable[..., dict[str, object]]
SPACES: dict[str, type[RelativeJoints | GripperPoses]] = {
    "relative_joints": RelativeJoints,
    "gripper_poses": GripperPoses,
}
GRIPPERS = [6, 13]
HINGES = [index for index in range(14) if index not in GRIPPERS]
POST = Contract(
    embodiment="post",
    base_frame="its foot",
    control_hz=10.0,
    cameras=(),
    joints=("post/turn", "post/hinge"),
    arms=("post",),
    action=(
        ActionDimension("post/hinge", "post", "joint"),
        ActionDimension("post/grip", "post", "gripper", unit="opening"),
    ),
)


def chunks(seed: int, spread: float = 1.0) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns random absolute joint targets (3, 5, 14) and the measured joints, float64."""
    random = np.random.default_rng(seed)
    middle, half = (ALOHA.lower + ALOHA.upper) / 2, (ALOHA.upper - ALOHA.lower) / 2 * spread
    drawn = middle + half * random.uniform(-1, 1, (3, 6, 14))
    return torch.from_numpy(drawn[:, 1:]), {"joints/position": torch.from_numpy(drawn[:, 0])}


def moves(seeds: tuple[int, ...] = (0, 1, 2), steps: int = 8) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns smooth absolute joint targets (B, steps, 14) and the measured joints, float64."""
    q = torch.from_numpy(np.stack([motion(seed, steps + 1) for seed in seeds]))
    return q[:, 1:], {"joints/position": q[:, 0]}


def rotations(seed: int, count: int = 20) -> Tensor:
    return torch.from_numpy(
        Rotation.from_rotvec(np.random.default_rng(seed).normal(size=(count, 3)) * 2).as_matrix()
    )


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_six_numbers_are_a_rotation(seed: int) -> None:
    """A round trip; any six numbers give a rotation along their first three."""
    rotated = rotations(seed)
    torch.testing.assert_close(rotation_of(six_numbers(rotated)), rotated, rtol=0, atol=1e-12)
    six = torch.from_numpy(np.random.default_rng(seed).normal(size=(20, 6)))
    found = rotation_of(six)
    eye = torch.eye(3, dtype=torch.float64).expand_as(found)
    torch.testing.assert_close(found.mT @ found, eye, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.linalg.det(found), torch.ones(20, dtype=torch.float64), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        found[..., 0], torch.nn.functional.normalize(six[:, :3], dim=-1), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    "six",
    [[0.0] * 6, [0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 2, 0], [1, 0, 0, -1, 0, 0], [0, 0, 1, 0, 0, 0]],
)
def test_degenerate_six_numbers_are_a_rotation(six: list[float]) -> None:
    found = rotation_of(torch.tensor(six, dtype=torch.float64))
    torch.testing.assert_close(
        found.mT @ found, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert torch.linalg.det(found) == pytest.approx(1)


def test_kinematics_are_those_of_the_embodiment() -> None:
    action, _ = chunks(0)
    rotation, position = ForwardKinematics(ALOHA)(action)
    for index, (_, expected) in enumerate(ALOHA.forward_kinematics(action.numpy()).items()):
        np.testing.assert_allclose(
            rotation[..., index, :, :], expected[..., :3, :3], rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(
            position[..., index, :], expected[..., :3, 3], rtol=0, atol=1e-12
        )
    single, _ = ForwardKinematics(ALOHA)(action.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), rotation, rtol=0, atol=1e-5)


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_relative_joints_are_restored(seed: int) -> None:
    action, observation = chunks(seed)
    space = RelativeJoints(contract=CONTRACT)
    encoded = space.encode(action, observation)
    torch.testing.assert_close(
        space.decode(encoded, observation), action, rtol=0, atol=1e-6
    )  # Limits are single precision.
    assert torch.equal(encoded[..., GRIPPERS], action[..., GRIPPERS])
    expected = action[..., HINGES] - observation["joints/position"][:, None, HINGES]
    torch.testing.assert_close(encoded[..., HINGES], expected, rtol=0, atol=0)
    moved = {"joints/position": observation["joints/position"] + 0.01}
    torch.testing.assert_close(space.encode(action + 0.01, moved)[..., HINGES], expected)


def test_relative_joints_stay_within_their_limits() -> None:
    _, observation = chunks(0)
    far = RelativeJoints(contract=CONTRACT).decode(
        torch.full((3, 2, 14), 9.0, dtype=torch.float64), observation
    )
    np.testing.assert_allclose(far[0, 0, HINGES], ALOHA.upper[HINGES], atol=1e-6)
    assert (far[..., GRIPPERS] == 9).all(), (
        "targets of grippers are unchanged: squeezing is beyond closed"
    )
    other = RelativeJoints(contract=POST)
    measured = {"joints/position": torch.tensor([[5.0, 1.0]])}
    assert other.decode(torch.tensor([[[2.0, 0.5]]]), measured).tolist() == [[[3.0, 0.5]]]
    assert other.encode(torch.tensor([[[3.0, 0.5]]]), measured).tolist() == [[[2.0, 0.5]]]


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_gripper_poses_are_restored(seed: int) -> None:
    """Anywhere within the limits the numbers are the commanded pose in the measured one."""
    action, observation = chunks(seed)
    space = GripperPoses(contract=CONTRACT)
    encoded = space.encode(action, observation)
    assert encoded.shape == (3, 5, space.dim) == (3, 5, 20)
    commanded, measured = (
        ALOHA.forward_kinematics(q.numpy()) for q in (action, observation["joints/position"])
    )
    poses = space.poses(encoded, observation).numpy()
    for index, arm in enumerate(ALOHA.arms):
        np.testing.assert_allclose(poses[:, :, index], commanded[arm], rtol=0, atol=1e-9)
        relative = np.linalg.inv(measured[arm])[:, None] @ commanded[arm]
        numbers = encoded[..., 9 * index : 9 * index + 9].numpy()
        np.testing.assert_allclose(numbers[..., :3], relative[..., :3, 3], rtol=0, atol=1e-9)
        np.testing.assert_allclose(numbers[..., 3:6], relative[..., :3, 0], rtol=0, atol=1e-9)
        np.testing.assert_allclose(numbers[..., 6:], relative[..., :3, 1], rtol=0, atol=1e-9)
    assert torch.equal(encoded[..., 18:], action[..., GRIPPERS])


def test_inverse_kinematics_restores_smooth_motions(caplog: pytest.LogCaptureFixture) -> None:
    """The same joints, since each pose is solved from the previous one; without a warning."""
    action, observation = moves()
    space = GripperPoses(contract=CONTRACT)
    with caplog.at_level(logging.WARNING):
        found = space.decode(space.encode(action, observation), observation)
    assert not caplog.records
    assert torch.equal(found[..., GRIPPERS], action[..., GRIPPERS])
    assert (found - action)[..., HINGES].abs().max() < 0.02
    for arm, pose_found in ALOHA.forward_kinematics(found.numpy()).items():
        np.testing.assert_allclose(
            pose_found, ALOHA.forward_kinematics(action.numpy())[arm], rtol=0, atol=2e-3
        )
    assert found.dtype == torch.float64
    again = space.decode(
        space.encode(action[1:], {"joints/position": observation["joints/position"][1:]}),
        {"joints/position": observation["joints/position"][1:]},
    )
    assert torch.equal(again, found[1:]), "plans do not depend on each other"


def test_a_pose_out_of_reach_is_replaced_by_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    """Two metres ahead of the left gripper: joints keep their limits, with a warning."""
    action, observation = moves((0,), 3)
    space = GripperPoses(contract=CONTRACT, first_iterations=15, iterations=5)
    encoded = space.encode(observation["joints/position"][:, None].expand_as(action), observation)
    encoded[:, 1:, 0] += 2.0
    with caplog.at_level(logging.WARNING):
        found = space.decode(encoded, observation)
    assert len(caplog.records) == 1
    assert "2 of 3 poses are out of reach; the nearest ones are off by up to" in caplog.text
    assert "left, action" in caplog.text
    assert (found.numpy() >= ALOHA.lower).all()
    assert (found.numpy() <= ALOHA.upper).all()
    reach = ALOHA.forward_kinematics(found[0].numpy())["left"]
    here = ALOHA.forward_kinematics(observation["joints/position"][0].numpy())["left"]
    ahead = (reach[2, :3, 3] - here[:3, 3]) @ here[:3, 0]
    assert ahead > 0.02, "towards the pose"
    torch.testing.assert_close(
        found[0, :, 7:13], observation["joints/position"][[0] * 3, 7:13], rtol=0, atol=0.02
    )


def test_gripper_poses_are_independent_of_the_base_frame() -> None:
    """With moved and rotated bases of the arms the same joints give the same numbers."""
    action, observation = moves()
    space, moved = GripperPoses(contract=CONTRACT), GripperPoses(contract=CONTRACT)
    base = pose((0.3, -2.0, 0.7), rotation_about((0.6, 0.0, 0.8), 1.1))
    chains = tuple(replace(chain, T_base_root=base @ chain.T_base_root) for chain in ALOHA.chains)
    moved.kinematics = ForwardKinematics(replace(ALOHA, chains=chains))
    torch.testing.assert_close(
        moved.encode(action, observation), space.encode(action, observation), rtol=0, atol=1e-12
    )


def test_unsuitable_contracts_are_rejected() -> None:
    relative = replace(POST, action=(replace(POST.action[0], mode="relative"),))
    with pytest.raises(
        ValueError,
        match=r"Action 'post/hinge' is a relative joint target; allowed for relative joints",
    ):
        RelativeJoints(contract=relative)
    with pytest.raises(
        ValueError,
        match=r"no measured joint for the action 'post/hinge'. Did you mean 'post/hinges'",
    ):
        RelativeJoints(contract=replace(POST, joints=("post/hinges",)))
    with pytest.raises(
        ValueError, match=r"no embodiment with known kinematics 'post'. .*Allowed: aloha"
    ):
        GripperPoses(contract=POST)
    with pytest.raises(
        ValueError, match=r"absolute targets of its 14 joints in their order .*; commanded are 13"
    ):
        GripperPoses(contract=replace(CONTRACT, action=CONTRACT.action[:13]))
    with pytest.raises(ValueError, match=r"tolerance must be a number above 0"):
        GripperPoses(contract=CONTRACT, tolerance=0)
    assert ContractActions(contract=relative).dim == 1


@pytest.mark.parametrize("name", SPACES)
def test_statistics_are_those_of_the_windows(
    name: str, demonstrations: EpisodeStore, of_demonstrations: OfDemonstrations
) -> None:
    """Against a loop over the training windows; targets fill the range of the network."""
    policy = of_demonstrations(f"+action={name}")
    windows = Windows(
        demonstrations, chunk=8, cameras=[camera.name for camera in policy.contract.cameras]
    )
    batch = {
        key: torch.from_numpy(value)
        for key, value in windows.batch(np.arange(len(windows))).items()
    }
    space = SPACES[name](contract=CONTRACT)
    rows = space.encode(batch["action"], batch)[batch["action_mask"]].double().numpy()
    found = policy.statistics[f"action/{name}/8"]
    assert found.count == len(rows)
    for statistic, expected in (
        ("min", rows.min(0)),
        ("max", rows.max(0)),
        ("mean", rows.mean(0)),
        ("std", rows.std(0)),
    ):
        np.testing.assert_allclose(
            getattr(found, statistic), expected, rtol=0, atol=1e-5, err_msg=statistic
        )
    normal = policy.normalised(batch["action"], batch)[batch["action_mask"]]
    assert normal.shape[-1] == policy.action_dim == space.dim
    assert normal.abs().max() <= 1 + 1e-4
    assert normal.abs().amax(dim=0).max() > 0.99


def test_autocast_does_not_round_actions(of_demonstrations: OfDemonstrations) -> None:
    policy, (action, observation) = of_demonstrations("+action=gripper_poses"), moves()
    single = {key: value.float() for key, value in observation.items()}
    expected = policy.normalised(action.float(), single)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(policy.normalised(action.float(), single), expected)


def test_the_default_is_unchanged(contract: Contract) -> None:
    action, observation = chunks(0)
    space: ActionSpace = ContractActions(contract=contract)
    assert space.encode(action, observation) is action
    assert space.decode(action, observation) is action
    assert space.statistics_key(48) == "action"
