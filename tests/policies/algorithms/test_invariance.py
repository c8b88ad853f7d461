"""Invariance: one translation of every T_base_* changes neither tokens nor plans.

Joints stay as they are. Registers, holes in depth, a camera without depth or geometry, history and
instruction are present.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.policies.demonstrations import CONTRACT
from torch import Tensor

from stringline import ChunkPolicy, EpisodeStore, Windows
from stringline.datasets.contract.contract import NUMBER_KEY
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.checkpoints.load import add_action_statistics, build_policy

Configuration = Callable[..., dict[str, object]]
TABLE_HAS_COLOURS_ONLY = CONTRACT.with_cameras(
    *(
        replace(camera, depth=None, has_geometry=False) if camera.name == "table" else camera
        for camera in CONTRACT.cameras
    )
)
LOOKING_BACK = (
    "+history=state",
    "policy.observation_encoder.history.ages_s=[0.16,0.08]",
    "policy.observation_encoder.history.images=true",
)
RAYS = (
    "+coordinates=rays",
    "coordinates.places.plane_m=null",
    "policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right]",
)
BOUND = 1e-6


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def batch(demonstrations: EpisodeStore) -> dict[str, Tensor]:
    """Three windows in float64: one without a past, one without an instruction."""
    read = Windows(demonstrations, chunk=8, past=(8, 4)).batch([0, 3, 10])
    lacking = ("depth/table", "T_base_camera/table", "intrinsics/table")
    tensors = {
        key: torch.from_numpy(value) for key, value in read.items() if not key.endswith(lacking)
    }
    tensors[NUMBER_KEY][2] = 0
    assert all((tensors[f"depth/{name}"] == 0).any() for name in ("overhead", "wrist_left"))
    return {
        key: value.double() if value.is_floating_point() else value
        for key, value in tensors.items()
    }


@pytest.fixture
def policy_of(
    demonstrations: EpisodeStore, measured: Statistics, configuration: Configuration
) -> Callable[..., ChunkPolicy]:
    """Builds a policy in float64 that reads all cameras, with registers."""
    episodes = [demonstrations.episode(name) for name in demonstrations.names()]

    def make(*overrides: str) -> ChunkPolicy:
        torch.manual_seed(0)
        cameras = "policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right,table]"
        model = configuration(cameras, "+policy.observation_encoder.registers=2", *overrides)
        found = add_action_statistics(measured, model, TABLE_HAS_COLOURS_ONLY, episodes)
        policy = build_policy(model, TABLE_HAS_COLOURS_ONLY, found).double().eval()
        assert isinstance(policy, ChunkPolicy)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return policy

    return make


def transformed(batch: Mapping[str, Tensor], T: Tensor) -> dict[str, Tensor]:
    """Moves the whole world: multiplies every T_base_*, present and past, by T (4, 4)."""
    return {
        key: T @ value if key.removeprefix("past/").startswith("T_base_") else value
        for key, value in batch.items()
    }


def translation(*shift: float) -> Tensor:
    T = torch.eye(4)
    T[:3, 3] = torch.tensor(shift)
    return T


def generated(policy: ChunkPolicy, batch: Mapping[str, Tensor]) -> Tensor:
    """Returns the output of the sampler, before its conversion to actions of the contract."""
    with torch.inference_mode():
        return policy.generate(policy.observation_encoder(batch), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("action", ["absolute", "relative_joints", "gripper_poses"])
@pytest.mark.parametrize("encoder", ["cayley", "circulant"])
def test_a_common_translation_changes_neither_tokens_nor_actions(
    policy_of: Callable[..., ChunkPolicy], batch: dict[str, Tensor], action: str, encoder: str
) -> None:
    block = (
        ["encoder.encoding.block=4"] if encoder == "circulant" else []
    )  # The small policy has heads of 8 channels.
    policy = policy_of(
        f"+encoder={encoder}", f"+action={action}", *LOOKING_BACK, "+instruction=task", *block
    )
    there = transformed(batch, translation(0.4, -1.3, 0.7))
    with torch.inference_mode():
        one, other = policy.observation_encoder(batch), policy.observation_encoder(there)
    assert one.present is not None
    seen = 16 - 3  # Three cameras have a patch without depth, which is excluded.
    assert one.present.sum(dim=1).tolist() == [
        seen + 1 + 2,
        3 * seen + 2 * 2 + 1 + 2,
        3 * seen + 2 * 2 + 2,
    ]
    assert (one.tokens - other.tokens)[one.present].abs().max() <= BOUND * one.tokens[
        one.present
    ].abs().max()
    assert (one.tokens - other.tokens)[one.present].abs().max() <= BOUND
    assert (generated(policy, batch) - generated(policy, there)).abs().max() <= BOUND
    action_here, action_there = (
        policy.predict(each, torch.Generator().manual_seed(0)) for each in (batch, there)
    )
    assert (action_here - action_there).abs().max() <= BOUND
    targets = [policy.normalised(each["action"], each) for each in (batch, there)]
    assert torch.equal(*targets), "the targets of training are independent of the base frame"


def test_all_inputs_have_an_effect(
    policy_of: Callable[..., ChunkPolicy], batch: dict[str, Tensor]
) -> None:
    """The invariance is not trivial: positions, images, past and instruction change the plan."""
    policy = policy_of("+action=relative_joints", *LOOKING_BACK, "+instruction=task")
    here = generated(policy, batch)
    for key in (
        "T_base_gripper/left",
        "T_base_camera/overhead",
        "past/T_base_gripper/right",
        "past/T_base_camera/wrist_left",
    ):
        alone = batch | {key: translation(0.1, 0.0, 0.05) @ batch[key]}
        assert (generated(policy, alone) - here)[1].abs().max() > 1e-4, key
    for key in ("rgb/table", "past/rgb/table", NUMBER_KEY):
        assert (generated(policy, batch | {key: batch[key].flip(0)}) - here).abs().max() > 1e-5, key


def test_a_rotation_of_the_base_changes_the_tokens_only(
    policy_of: Callable[..., ChunkPolicy], batch: dict[str, Tensor]
) -> None:
    """Metric places depend on a rotation of the world; relative gripper poses do not."""
    policy = policy_of("+action=gripper_poses", *LOOKING_BACK, "+instruction=task")
    T = translation(0.2, 0.1, 0.0)
    T[:2, :2] = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    turned = transformed(batch, T)
    assert torch.equal(
        policy.normalised(turned["action"], turned), policy.normalised(batch["action"], batch)
    )
    with torch.inference_mode():
        one, other = policy.observation_encoder(batch), policy.observation_encoder(turned)
    assert (one.tokens - other.tokens)[1].abs().max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "places", "by", "choice"),
    [
        ("diffusion", "none", "axes", ()),
        ("diffusion", "noisy_pose", "heads", ()),
        ("flow", "gripper", "heads", ()),
        ("energy", "noisy_pose", "axes", ()),
        # Rays without depth have a spread, which turns with the frames.
        ("flow", "gripper", "heads", RAYS),
        ("flow", "none", "axes", RAYS),
        ("energy", "gripper", "axes", ()),
        ("flow", "none", "axes", ()),
    ],
)
def test_in_frames_of_both_grippers_a_rigid_motion_changes_no_plan(
    policy_of: Callable[..., ChunkPolicy],
    batch: dict[str, Tensor],
    policy: str,
    places: str,
    by: str,
    choice: tuple[str, ...],
) -> None:
    """The scene with the robot is moved and turned: the same tokens, and the same joint targets."""
    built = policy_of(
        f"+policy={policy}",
        "+action=gripper_poses",
        "+frames=grippers",
        f"policy.observation_encoder.frames.by={by}",
        f"+action_places={places}",
        *choice,
        *LOOKING_BACK,
        "+instruction=task",
    )
    T = translation(0.4, -1.3, 0.7)
    T[:3, :3] = torch.linalg.matrix_exp(
        torch.tensor([[0.0, -1.0, 0.5], [1.0, 0.0, 2.0], [-0.5, -2.0, 0.0]])
    )
    there = transformed(batch, T)
    with torch.inference_mode():
        one, other = built.observation_encoder(batch), built.observation_encoder(there)
    assert one.present is not None
    assert (one.tokens - other.tokens)[one.present].abs().max() <= BOUND
    assert (generated(built, batch) - generated(built, there)).abs().max() <= BOUND
    action_here, action_there = (
        built.predict(each, torch.Generator().manual_seed(0)) for each in (batch, there)
    )
    assert (action_here - action_there).abs().max() <= BOUND
    alone = batch | {"T_base_camera/overhead": T @ batch["T_base_camera/overhead"]}
    assert (generated(built, alone) - generated(built, batch)).abs().max() > 1e-5


def test_a_rotation_about_the_axis_has_no_effect_in_cylindrical_places(
    policy_of: Callable[..., ChunkPolicy], batch: dict[str, Tensor]
) -> None:
    """With coordinates that it shifts, and relative poses, the plan rotates with the world."""
    # Far behind the scene, so that no token crosses the cut.
    axis = "coordinates.places.origin=[0.0,-3.0,0.0]"
    policy = policy_of(
        "+action=gripper_poses",
        "+coordinates=cylindrical",
        axis,
        *LOOKING_BACK,
        "+instruction=task",
    )
    angle = np.radians(20.0)
    T = translation(0.0, -3.0, 0.0)
    T[:2, :2] = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turned = transformed(batch, T @ translation(0.0, 3.0, 0.0))
    assert (generated(policy, batch) - generated(policy, turned)).abs().max() <= BOUND
