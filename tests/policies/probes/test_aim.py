"""The aim probe: its geometry, grasps of demonstrations, and a policy that it measures."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.demonstrations import CONTRACT
from torch import Tensor

from stringline import ALOHA, ChunkPolicy
from stringline.datasets.contract.contract import Array
from stringline.policies.probes.probes import (
    AimProbe,
    Grasp,
    commanded_places,
    explained,
    first_grasp,
    level_distance,
)

MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]
GRIPPERS = [index for index, each in enumerate(CONTRACT.action) if each.kind == "gripper"]


@pytest.mark.parametrize("angle_deg", [0, 10, 60, 90, 120])
def test_the_aim_is_the_distance_from_the_ray(angle_deg: float) -> None:
    """Up to a right angle the perpendicular; behind the start, the distance from the start."""
    angle = math.radians(angle_deg)
    start = torch.tensor([[0.1, -0.2, 0.5]])
    end = start + 0.03 * torch.tensor([[math.cos(0.3), math.sin(0.3), -0.4]])
    target = start + 0.2 * torch.tensor([[math.cos(0.3 + angle), math.sin(0.3 + angle), -2.0]])
    expected = 0.2 * (math.sin(angle) if angle_deg < 90 else 1.0)
    assert level_distance(start, end, target).item() == pytest.approx(expected, abs=1e-6)


def test_a_policy_that_stands_still_aims_nowhere() -> None:
    start = torch.zeros(1, 3)
    assert level_distance(start, start + 1e-4, torch.tensor([[0.3, 0.4, 0.0]])).item() == (
        pytest.approx(0.5)
    )


def test_the_explained_share_is_one_for_exact_and_zero_for_the_mean() -> None:
    expert = torch.randn(20, 2, 3, generator=torch.Generator().manual_seed(0))
    assert explained(expert, expert) == 1.0
    assert explained(expert.mean(dim=0).expand_as(expert), expert) == pytest.approx(0.0, abs=1e-6)
    assert explained(expert + 5.0, expert) < 0.0


def episode(command: Array, other: float = 0.5) -> dict[str, Array]:
    """Returns an episode whose left gripper has a command (T,), and whose places are times."""
    action = np.full((len(command), len(CONTRACT.action)), other, np.float32)
    action[:, GRIPPERS[0]] = command
    poses = np.tile(np.eye(4, dtype=np.float32), (len(command), 1, 1))
    poses[:, 0, 3] = np.arange(len(command))
    return {"action": action} | {f"T_base_gripper/{arm}": poses for arm in CONTRACT.arms}


@pytest.mark.parametrize(
    ("command", "step"),
    [
        ([1.0, 1.0, 0.6, 0.3, 0.2, 0.2], 3),  # It narrows to 0.6 before it closes.
        ([0.2, 0.2, 0.9, 0.9, 0.2, 0.9], 4),  # It begins closed, and opens again at the end.
        ([0.9, 0.7, 0.5, 0.2, 0.1, 0.9], 3),
    ],
)
def test_a_grasp_is_where_an_open_gripper_closes(command: list[float], step: int) -> None:
    grasp = first_grasp(episode(np.array(command)), CONTRACT)
    assert grasp is not None
    assert (grasp.arm, grasp.position[0]) == (CONTRACT.action[GRIPPERS[0]].arm, step)


def test_an_episode_without_closing_has_no_grasp() -> None:
    assert first_grasp(episode(np.array([0.1, 0.5, 0.9])), CONTRACT) is None
    assert first_grasp(episode(np.array([0.5, 0.49, 0.5])), CONTRACT) is None
    closing = episode(np.array([0.9, 0.1]))
    without_places = {"action": closing["action"]}
    assert first_grasp(without_places, CONTRACT) is None


def exact(policy: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns windows whose actions are the chunks of a policy, which has one for each."""
    policy.predict = lambda windows, generator: windows["action"]
    return batch


def test_exact_chunks_are_explained_and_aim_at_their_ends(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy, batch = make_policy(), make_batch(6)
    windows = exact(policy, batch)
    places = commanded_places(policy.contract)
    assert places is not None
    ends = places(batch["action"][:, -1]).numpy()
    grasps = [Grasp(arm, ends[row, row % 2]) for row, arm in enumerate(ALOHA.arms * 3)]
    metrics = AimProbe(windows, grasps)(policy)
    assert metrics["explained"] == pytest.approx(1.0)
    assert metrics["aim_mm"] == pytest.approx(0.0, abs=1e-2)


def test_an_untrained_policy_explains_nothing(
    make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    metrics = AimProbe(make_batch(6))(policy)
    assert set(metrics) == {"explained"}
    assert metrics["explained"] < 0.5
    assert AimProbe(make_batch(6))(policy) == metrics


def test_places_need_joint_targets_of_a_known_robot() -> None:
    assert commanded_places(replace(CONTRACT, embodiment="other")) is None
    relative = [replace(each, mode="relative") for each in CONTRACT.action]
    assert commanded_places(replace(CONTRACT, action=tuple(relative))) is None


def test_wrong_counts_are_refused(make_batch: MakeBatch) -> None:
    with pytest.raises(ValueError, match=r"at least 3 held-out episodes; got 2"):
        AimProbe(make_batch(2))
    with pytest.raises(ValueError, match=r"There are 2 grasps of 6 episodes"):
        AimProbe(make_batch(6), [None, None])
