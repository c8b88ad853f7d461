"""Checkpoints of policies: round trip, digests, names, and the shipped checkpoint."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.policies.conftest import observation

from stringline import ALOHA, ChunkPolicy, load_policy
from stringline.datasets.contract.contract import Array
from stringline.policies.checkpoints.load import SHIPPED, checkpoint_digest, save_policy

MakePolicy = Callable[..., ChunkPolicy]

# Last actions of the first chunk on `observation(0)`, as of the version that the checkpoint is of.
PLANNED = {
    "hand_over_banana": [
        *(-0.0508, 0.1309, 0.4068, 0.2455, 1.0437, -0.1000, 1.0),
        *(0.0034, -0.8286, 1.1214, 0.0390, -0.2555, -0.0163, 0.9353),
    ],
    "kuka_pick": [1.8269, -0.2512, -1.6589, 0.0117, -0.3198, 0.6658, 0.4236, 0.0],
}

Observe = Callable[[int], dict[str, Array]]


def test_a_checkpoint_gives_the_same_policy(
    tmp_path: Path,
    make_policy: MakePolicy,
    observe: Observe,
    configuration: Callable[..., dict[str, object]],
) -> None:
    policy = make_policy()
    save_policy(tmp_path / "c", policy, configuration(), {"steps": 3})
    again = load_policy(tmp_path / "c")
    assert again.contract == policy.contract
    assert np.array_equal(
        policy.session(1).plan(observe(0)).action, again.session(1).plan(observe(0)).action
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLANNED)
def test_shipped_checkpoints_plan_as_they_did(name: str) -> None:
    """New defaults, such as of the places of patches, leave them as they were."""
    policy = load_policy(name)
    seen = observation(0, policy.contract)
    for camera in policy.contract.cameras:
        intrinsics = [[150, 0, 64], [0, 150, 64], [0, 0, 1]]
        seen[f"intrinsics/{camera.name}"] = np.array(intrinsics, np.float32)
    planned = policy.session(0).plan(seen).action[-1]
    np.testing.assert_allclose(planned, PLANNED[name], atol=2e-3)


def test_checkpoints_build_networks_only(
    tmp_path: Path, make_policy: MakePolicy, configuration: Callable[..., dict[str, object]]
) -> None:
    save_policy(tmp_path / "c", make_policy(), configuration(), {})
    file = tmp_path / "c" / "checkpoint.yaml"
    text = file.read_text()
    refusals = {
        "stringline.sim.rollout.workers.Worker": "no public name",
        "stringline.Trainer": "not a class derived from Module",
    }
    for target, refusal in refusals.items():
        file.write_text(text.replace("stringline.MetricPlaces", target))
        with pytest.raises(ValueError, match=refusal):
            load_policy(tmp_path / "c")


def test_checkpoints_have_different_digests(
    tmp_path: Path, make_policy: MakePolicy, configuration: Callable[..., dict[str, object]]
) -> None:
    policy = make_policy()
    save_policy(tmp_path / "c", policy, configuration(), {})
    before = checkpoint_digest(tmp_path / "c")
    save_policy(tmp_path / "c", policy, configuration(), {})
    assert checkpoint_digest(tmp_path / "c") == before
    with torch.no_grad():
        next(policy.parameters()).add_(1e-6)
    save_policy(tmp_path / "c", policy, configuration(), {})
    assert checkpoint_digest(tmp_path / "c") != before


def test_an_unknown_checkpoint_is_reported_with_the_shipped_ones() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"no checkpoint folder or shipped checkpoint 'hand_over_bannana'. Did you mean "
            r"'hand_over_banana'"
        ),
    ):
        load_policy("hand_over_bannana")


def test_the_shipped_checkpoint_plans() -> None:
    """It is small enough to ship, fits ALOHA, and plans within its limits."""
    policy = load_policy("hand_over_banana")
    assert isinstance(policy, ChunkPolicy)
    size = sum(file.stat().st_size for file in (SHIPPED / "hand_over_banana").iterdir())
    assert size <= 10_000_000
    assert policy.contract.incompatibilities(ALOHA.contract(policy.contract.cameras, 50.0)) == []
    assert (policy.action_range.low.numpy() >= ALOHA.lower - 0.05).all()
    assert (policy.action_range.high.numpy() <= ALOHA.upper + 0.05).all()
