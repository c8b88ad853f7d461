"""Chunk policies in an action space: plans, checkpoints, and statistics of actions."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.policies.demonstrations import CONTRACT

from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import KeyStatistics, Statistics, statistics_of
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.action_spaces.gripper_poses import GripperPoses
from stringline.policies.action_spaces.space import RelativeJoints
from stringline.policies.algorithms.chunk_policy import ChunkPolicy, check_actions
from stringline.policies.checkpoints.load import build_policy, load_policy, save_policy

OfDemonstrations = Callable[..., ChunkPolicy]


Configuration = Callable[..., dict[str, object]]


SPACES: dict[str, type[RelativeJoints | GripperPoses]] = {
    "relative_joints": RelativeJoints,
    "gripper_poses": GripperPoses,
}


@pytest.mark.parametrize("name", SPACES)
def test_a_policy_in_another_space_plans_in_the_contract(
    name: str,
    tmp_path: Path,
    demonstrations: EpisodeStore,
    of_demonstrations: OfDemonstrations,
    configuration: Configuration,
) -> None:
    """The policy trains, plans and is restored without the data; its plans are of the contract."""
    policy = of_demonstrations(f"+action={name}", "policy.chunk=4")
    batch = {
        key: torch.from_numpy(value)
        for key, value in Windows(demonstrations, chunk=4).batch([0, 7]).items()
    }
    policy.train().loss(batch).backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())
    policy.eval()
    predicted = policy.predict(batch, torch.Generator().manual_seed(0))
    assert predicted.shape == (2, 4, 14)
    save_policy(tmp_path / "c", policy, configuration(f"+action={name}", "policy.chunk=4"), {})
    again = load_policy(tmp_path / "c")
    assert type(again.action_space) is type(policy.action_space)
    np.testing.assert_array_equal(
        again.statistics[f"action/{name}/4"].max, policy.statistics[f"action/{name}/4"].max
    )
    torch.testing.assert_close(
        again.predict(batch, torch.Generator().manual_seed(0)), predicted, rtol=0, atol=0
    )
    assert not [key for key in policy.state_dict() if "action_space" in key], (
        "the contract is all that a space comes from"
    )
    observation = {
        key: value[0].numpy()
        for key, value in batch.items()
        if not key.startswith(("action", "past"))
    }
    assert policy.session(0).plan(observation).action.shape == (4, 14)


def test_statistics_of_another_space_need_data(
    configuration: Configuration, measured: Statistics
) -> None:
    numbers = Statistics.from_dict(measured.to_dict())
    with pytest.raises(
        ValueError,
        match=(
            r"no statistics of 'action/relative_joints/8', the actions that this policy generates; "
            r"known: action,"
        ),
    ):
        build_policy(configuration("+action=relative_joints"), CONTRACT, numbers)


def of_rows(rows: list[list[float]]) -> KeyStatistics:
    return statistics_of(lambda: iter([np.array(rows)]))


def test_statistics_without_a_range_are_rejected(
    configuration: Configuration, contract: Contract, statistics: Statistics
) -> None:
    """An action that is constant in all dimensions; a single constant dimension is valid."""
    still = of_rows([[0.5] * 14] * 3)
    with pytest.raises(
        ValueError,
        match=r"'action' have zero range in each of the 14 dimensions .* moves the robot",
    ):
        build_policy(configuration(), contract, Statistics({**statistics, "action": still}))
    check_actions("action", of_rows([[0.5, 1.0], [0.5, 2.0]]), 2)
    with pytest.raises(ValueError, match=r"'action' are not finite"):
        check_actions(
            "action", replace(of_rows([[0.5, 1.0], [0.5, 2.0]]), max=np.array([0.5, np.nan])), 2
        )
    with pytest.raises(ValueError, match=r"'action' have 2 dimensions; actions have 14"):
        build_policy(
            configuration(),
            contract,
            Statistics({**statistics, "action": of_rows([[0.5, 1.0], [0.5, 2.0]])}),
        )
