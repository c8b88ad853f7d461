"""Actions with places: one arm and two, all kinds of policies, errors, and checkpoints."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.policies.conftest import batch_of, model_configuration, observation
from torch import Tensor

from stringline import ALOHA, IIWA14, Camera, ChunkPolicy, Contract, GripperPoses, load_policy
from stringline.datasets.contract.contract import Array
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.policies.algorithms.denoising_policy import DenoisingPolicy
from stringline.policies.checkpoints.load import build_policy, save_policy
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.networks.placed_denoiser import PlacedDenoiser

MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]
ONE_ARM = IIWA14.contract([Camera(name, 32, 32, "simulated") for name in ("overhead", "wrist")], 30)
KINDS = ("diffusion", "flow", "energy")
GRIPPERS = ("+frames=grippers", "+action=gripper_poses")


def ranges(contract: Contract) -> Statistics:
    """Returns statistics of joints within their limits, and of poses within 0.3 m and any turn."""
    body = IIWA14 if contract is ONE_ARM else ALOHA
    joints = np.stack([body.lower, body.upper])
    most = np.array([*([0.3] * 3 + [1.0] * 6) * len(body.arms), *[1.0] * len(body.arms)])
    poses = np.stack([-most, most])
    rows = {
        "action": joints,
        "joints/position": joints,
        "action/gripper_poses/8": poses,
        "keypose/gripper_poses": 2 * poses,
    }
    return Statistics({key: statistics_of(lambda x=x: iter([x])) for key, x in rows.items()})


def policy_for(contract: Contract, *overrides: str, initial: bool = False) -> DenoisingPolicy:
    """Builds a policy in float64 whose inputs all have an effect, unless it is `initial`."""
    torch.manual_seed(0)
    names = ",".join(camera.name for camera in contract.cameras)
    model = model_configuration(f"policy.observation_encoder.cameras=[{names}]", *overrides)
    policy = build_policy(model, contract, ranges(contract)).double().eval()
    with torch.no_grad():
        for parameter in () if initial else policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert isinstance(policy, DenoisingPolicy)
    return policy


def windows(contract: Contract) -> dict[str, Tensor]:
    """Returns two windows in float64."""
    seen = [observation(seed, contract) for seed in range(2)]
    batch = batch_of(seen, 8, len(contract.action))
    return {key: x.double() if x.is_floating_point() else x for key, x in batch.items()}


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def generated(policy: DenoisingPolicy, batch: dict[str, Tensor]) -> Tensor:
    with torch.inference_mode():
        encoded = policy.observation_encoder(batch)
        return policy.generate(encoded, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("by", ["axes", "heads"])
@pytest.mark.parametrize("places", ["none", "gripper", "noisy_pose"])
def test_in_the_frame_of_one_gripper_a_rigid_motion_changes_no_plan(places: str, by: str) -> None:
    choice = f"policy.observation_encoder.frames.by={by}"
    policy = policy_for(ONE_ARM, *GRIPPERS, choice, f"+action_places={places}")
    batch = windows(ONE_ARM)
    T = torch.eye(4)
    T[:3, :3] = torch.linalg.matrix_exp(
        torch.tensor([[0.0, -1.0, 0.5], [1.0, 0.0, 2.0], [-0.5, -2.0, 0.0]])
    )
    T[:3, 3] = torch.tensor([0.4, -1.3, 0.7])
    moved = {key: T @ x if key.startswith("T_base_") else x for key, x in batch.items()}
    here = generated(policy, batch)
    assert (here - generated(policy, moved)).abs().max() <= 1e-6
    alone = batch | {"T_base_camera/overhead": moved["T_base_camera/overhead"]}
    assert (here - generated(policy, alone)).abs().max() > 1e-5


def test_the_orientation_of_a_gripper_enters_attention_in_its_frame_only() -> None:
    batch = windows(ONE_ARM)
    turned = {"T_base_gripper/arm": batch["T_base_gripper/arm"].clone()}
    turned["T_base_gripper/arm"][:, :3, :3] = turned["T_base_gripper/arm"][:, :3, [1, 2, 0]]
    for frames, effect in (("base", False), ("grippers", True), ("base_and_grippers", True)):
        encoder = policy_for(ONE_ARM, f"+frames={frames}", "+action=gripper_poses").eval()
        one, other = (encoder.observation_encoder(each).tokens for each in (batch, batch | turned))
        assert ((one - other).abs().max() > 1e-3) == effect, frames


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("places", ["gripper", "noisy_pose"])
def test_two_arms_train_keep_to_a_prefix_and_share_the_initial_weights(
    contract: Contract, kind: str, places: str
) -> None:
    choice = (f"+policy={kind}", "+frames=grippers", "+action=gripper_poses")
    policy = policy_for(contract, *choice, f"+action_places={places}")
    usual = policy_for(contract, *choice, initial=True).state_dict()
    fresh = policy_for(contract, *choice, f"+action_places={places}", initial=True).state_dict()
    assert all(torch.equal(fresh[name], usual[name]) for name in usual)
    assert {name.split(".")[1] for name in fresh.keys() - usual.keys()} == {"encoding"}
    batch = windows(contract)
    policy.train().observation_encoder.joint_dropout = 0.0  # type: ignore[assignment]
    policy.loss(batch).backward()  # type: ignore[no-untyped-call]
    without = [name for name, p in policy.named_parameters() if p.grad is None or not p.grad.any()]
    # Patches without depth take no part, so no token has the mark.
    assert without == ["observation_encoder.blocks.unplaced_mark"]
    action = torch.rand(2, 8, policy.action_dim) - 0.5
    weight = torch.tensor([1.0, 1.0, 0.5, 0, 0, 0, 0, 0])
    with torch.inference_mode():
        chunk = policy.eval().generate(
            policy.observation_encoder(batch),
            torch.Generator().manual_seed(0),
            NormalisedPrefix(action, weight),
        )
    assert torch.equal(chunk[:, :2], action[:, :2])
    assert chunk.isfinite().all()


def test_action_tokens_are_at_the_pose_that_they_generate(contract: Contract) -> None:
    """The coordinates of a token are those of the decoded position, in every frame."""
    policy = policy_for(
        contract, "+frames=base_and_grippers", *GRIPPERS[1:], "+action_places=noisy_pose"
    )
    batch = windows(contract)
    network, space = policy.denoiser, policy.action_space
    assert isinstance(network, PlacedDenoiser)
    assert isinstance(space, GripperPoses)
    assert space.positions is not None
    noisy = torch.rand(2, 1, 8, policy.action_dim) - 0.5
    memory = policy.precompute(network, policy.observation_encoder(batch))
    found = network._coordinates(noisy, memory.places).reshape(2, 2, 2, 9)
    measured = {arm: batch[f"T_base_gripper/{arm}"] for arm in contract.arms}
    for number, arm in enumerate(contract.arms):
        numbers = policy.action_range.restore(noisy)[:, 0, :, space.positions[number]]
        ahead = numbers.reshape(2, 2, 4, 3).mean(dim=2)  # Two arms: four steps share a token.
        point = torch.nn.functional.pad(ahead, (0, 1), value=1.0)[..., None]
        world = measured[arm][:, None] @ point
        inside = [torch.linalg.inv(T)[:, None] @ world for T in measured.values()]
        expected = torch.cat([each[..., :3, 0] for each in (world, *inside)], dim=-1)
        torch.testing.assert_close(found[:, number], expected)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("+action_places=noisy_pose",), r"noisy_pose with actions of the space 'contract'"),
        (("+action_places=gripper", "policy.action_places.at=griper"), r"Did you mean 'gripper'"),
        (("+action_places=gripper", "+coordinates=grid"), r"Tokens have GridPlaces; allowed"),
        (("+frames=grippers", "+coordinates=grid"), r"Frames of GridPlaces; allowed: coordinates"),
        (
            ("+frames=grippers", "policy.observation_encoder.frames.names=[gripper/lfet]"),
            r"no frame 'gripper/lfet'. Did you mean 'gripper/left'",
        ),
        (("+action_places=gripper", "policy.chunk=6"), r"chunk is 6; allowed for 2 arms"),
        (
            (
                "+action_places=gripper",
                "+policy.denoiser={_target_: stringline.UnetDenoiser, _partial_: true}",
            ),
            r"action_places need the transformer",
        ),
        (
            ("+action_places=gripper", "policy/observation_encoder=vit"),
            r"action_places with PlainVisionEncoder, whose tokens have no places",
        ),
    ],
)
def test_what_does_not_fit_is_reported_in_a_line(
    contract: Contract, overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        policy_for(contract, *overrides)
    assert "\n" not in str(raised.value)


def test_a_checkpoint_keeps_frames_and_places(
    tmp_path: Path,
    make_policy: MakePolicy,
    observe: Callable[[int], dict[str, Array]],
    configuration: Callable[..., dict[str, object]],
) -> None:
    torch.set_default_dtype(torch.float32)
    choice = ("+frames=base_and_grippers", "+action_places=gripper")
    policy = make_policy(*choice)
    save_policy(tmp_path / "c", policy, configuration(*choice), {})
    again = load_policy(tmp_path / "c")
    assert np.array_equal(
        policy.session(1).plan(observe(0)).action, again.session(1).plan(observe(0)).action
    )
