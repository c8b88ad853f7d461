"""Ranges of keyposes in the action spaces, and the places of their tokens."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.policies.action_spaces.test_open_close import write_store
from tests.policies.conftest import model_configuration
from tests.policies.demonstrations import CONTRACT
from tests.policies.grasps import KEYPOSE, PLACED, POSES, batch_for, few, generator, policy_of

from stringline.datasets.store.store import EpisodeStore
from stringline.policies.algorithms.denoising_policy import DenoisingPolicy
from stringline.policies.checkpoints.load import load_policy, save_policy
from stringline.policies.networks.placed_denoiser import PlacedDenoiser
from stringline.sim.training.training_data import TrainingData


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return TrainingData(write_store(tmp_path_factory.mktemp("grasps") / "store"), held_out=0)


@pytest.mark.parametrize(
    ("choice", "key"),
    [
        ((), "action"),
        (("+action=relative_joints",), "keypose/relative_joints"),
        (POSES, "keypose/gripper_poses"),
        (("+gripper=open_close",), "keypose/contract/open_close"),
        (("+action=relative_joints", "+gripper=open_close"), "keypose/relative_joints/open_close"),
    ],
)
def test_keyposes_have_a_range_of_their_own(
    data: TrainingData, choice: tuple[str, ...], key: str
) -> None:
    """It is measured if keyposes are not among the actions; commands remain as they are."""
    policy = policy_of(data, *choice, "policy.chunk=2", KEYPOSE)
    known = set(policy_of(data, *choice, "policy.chunk=2").statistics)
    assert set(policy.statistics) - known == {key} - {"action"}
    batch = batch_for(policy, data)
    assert policy.keypose_range is not None
    numbers = policy.action_space.encode(batch["keypose"][:, None], batch)
    normal = policy.keypose_range.normalise(numbers)
    assert normal.abs().max() <= 1 + 1e-4
    assert normal.abs().amax(dim=(0, 1)).max() == pytest.approx(1, abs=1e-4)
    if "+gripper=open_close" in choice:
        commands = normal[..., policy.action_space.openings]
        torch.testing.assert_close(commands, numbers[..., policy.action_space.openings])
    if "relative" in key or "poses" in key:
        beyond = policy.action_range.normalise(numbers).abs().max()
        assert beyond > 1.5, "keyposes are further away than the chunk"


def test_grippers_that_are_closed_in_all_keyposes_are_valid(tmp_path: Path) -> None:
    """As in data that end after a grasp; the windows themselves contain both commands."""
    store = EpisodeStore.create(tmp_path / "store")
    for stored in write_store(tmp_path / "whole").episodes():
        arrays = {key: np.array(value) for key, value in stored.arrays.items()}
        arrays["action"][:, 6] = np.interp(np.arange(len(arrays["time"])), [4, 9], [1.0, 0.6])
        store.write(arrays, stored.attributes)
    data = TrainingData(store, held_out=0)
    policy = policy_of(data, "+action=relative_joints", "+gripper=open_close", KEYPOSE)
    batch = batch_for(policy, data)
    assert set(batch["keypose"][:, 6].tolist()) == {0.0}
    assert set(batch["action"][..., 6].unique().tolist()) == {0.0, 1.0}
    assert policy.loss(batch).isfinite()


@pytest.fixture
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
def test_its_token_is_at_the_pose_that_it_generates(data: TrainingData) -> None:
    """Actions and keypose are at their decoded positions, each by its own range."""
    policy = policy_of(data, "+frames=base", *PLACED[1:], KEYPOSE).double()
    batch = {
        key: value.double() if value.is_floating_point() else value
        for key, value in few(batch_for(policy, data)).items()
    }
    network, space = policy.denoiser, policy.action_space
    assert isinstance(network, PlacedDenoiser)
    assert policy.keypose_range is not None
    assert space.positions is not None
    noisy = torch.rand(3, 1, policy.rows, policy.action_dim) - 0.5
    memory = policy.precompute(network, policy.observation_encoder(batch))
    found = network._coordinates(noisy, memory.places).reshape(3, 2, 3, 3)
    restored = torch.cat(
        (
            policy.action_range.restore(noisy[:, 0, :8]),
            policy.keypose_range.restore(noisy[:, 0, 8:]),
        ),
        dim=1,
    )
    for number, arm in enumerate(CONTRACT.arms):
        ahead = restored[..., space.positions[number]].reshape(3, 3, 4, 3).mean(dim=2)
        T = batch[f"T_base_gripper/{arm}"]
        expected = ahead @ T[:, :3, :3].mT + T[:, None, :3, 3]
        torch.testing.assert_close(found[:, number], expected, rtol=0, atol=1e-6)


def test_a_checkpoint_restores_it_without_the_data(data: TrainingData, tmp_path: Path) -> None:
    choice = (*PLACED, "+gripper=open_close", KEYPOSE)
    policy = policy_of(data, *choice)
    batch = few(batch_for(policy, data))
    save_policy(tmp_path / "c", policy, model_configuration(*choice), {})
    again = load_policy(tmp_path / "c")
    assert isinstance(again, DenoisingPolicy)
    for each in ("predict", "predict_keypose"):
        one, other = (getattr(policy, each), getattr(again, each))
        assert torch.equal(one(batch, generator()), other(batch, generator()))
