"""DP3's observation encoder: invariances of its clouds, the second observation, other contracts."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from tests.policies.conftest import observation
from tests.policies.demonstrations import CAMERAS, CONTRACT, episode, make_store, observation_at
from torch import Tensor, nn

from stringline import Camera, Contract, PointNetEncoder, UnetDenoiser
from stringline.datasets.contract.contract import ActionDimension, Array
from stringline.datasets.loading.farthest_points import SampledCloudSettings
from stringline.datasets.loading.statistics import GRIPPER_POSITIONS, Statistics, statistics_of
from stringline.policies.algorithms.diffusion import DiffusionPolicy, DiffusionSettings
from stringline.policies.networks.unet import UnetSettings
from stringline.policies.observation.pointnet_encoder import PointNetSettings
from stringline.sim.training.training_data import TrainingData

POINTS = 48
BOX = ((-2.0, -2.0, -2.0), (2.0, 2.0, 2.0))
CLOUDS = SampledCloudSettings(points=POINTS, voxel_m=0.05)
SETTINGS = PointNetSettings(cameras=CAMERAS[:2], workspace=BOX, clouds=CLOUDS, previous_steps=8)
SMALL_UNET = UnetSettings(down_dims=(16, 32), groups=4, condition_dim=None)


def known(contract: Contract) -> Statistics:
    """Returns statistics of joints, grippers and actions of a contract."""
    sizes = {"action": len(contract.action), "joints/position": len(contract.joints)}
    sizes[GRIPPER_POSITIONS] = 3
    rows = {key: np.array([[-1.0], [1.0]]).repeat(size, axis=1) for key, size in sizes.items()}
    return Statistics({key: statistics_of(partial(_parts, row)) for key, row in rows.items()})


def _parts(rows: Array) -> Any:
    return iter([rows])


def make(settings: PointNetSettings = SETTINGS, contract: Contract = CONTRACT) -> PointNetEncoder:
    torch.manual_seed(0)
    return PointNetEncoder(settings, contract, known(contract)).eval()


@pytest.fixture
def batch() -> dict[str, Tensor]:
    """Returns two observations, each with a past one."""
    generator = torch.Generator().manual_seed(0)
    present = {
        "cloud/points": torch.rand(4, POINTS, 3, generator=generator) - 0.5,
        "cloud/colours": torch.randint(0, 256, (4, POINTS, 3), generator=generator).byte(),
        "cloud/count": torch.tensor([POINTS, 30, POINTS, 30]),
        "joints/position": torch.rand(4, 14, generator=generator),
        **{
            f"T_base_gripper/{arm}": torch.rand(4, 4, 4, generator=generator)
            for arm in CONTRACT.arms
        },
    }
    past = {f"past/{key}": value[2:, None] for key, value in present.items()}
    return (
        {key: value[:2] for key, value in present.items()}
        | past
        | {"past_mask": torch.tensor([[True], [True]])}
    )


def token(encoder: PointNetEncoder, batch: Mapping[str, Tensor]) -> Tensor:
    found = encoder(batch)
    assert found.tokens.shape == (len(batch["joints/position"]), 1, encoder.dim)
    return found.tokens[:, 0]


@pytest.mark.parametrize("colours", [False, True])
def test_the_order_of_points_and_what_is_beyond_their_number_have_no_effect(
    batch: dict[str, Tensor], colours: bool
) -> None:
    encoder = make(replace(SETTINGS, colours=colours))
    usual = token(encoder, batch)
    assert torch.equal(usual, token(encoder, batch))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    order = torch.cat((order, torch.arange(30, POINTS)))
    changed = dict(batch)
    for key in ("cloud/points", "cloud/colours"):
        changed[key] = batch[key][:, order]
        changed[key][1, 30:] = 77
    torch.testing.assert_close(token(encoder, changed), usual)
    changed["cloud/points"] = batch["cloud/points"] + 0.01
    assert (token(encoder, changed) - usual).abs().max() > 1e-4
    changed = batch | {"cloud/colours": 255 - batch["cloud/colours"]}
    assert torch.equal(token(encoder, changed), usual) is not colours


def test_the_token_is_the_previous_and_the_present_observation(batch: dict[str, Tensor]) -> None:
    encoder = make()
    both = token(encoder, batch)
    single = make(replace(SETTINGS, previous_steps=0))
    assert (encoder.dim, single.dim) == (256, 128)
    earlier = {key[5:]: value[:, 0] for key, value in batch.items() if key.startswith("past/")}
    torch.testing.assert_close(both, torch.cat((token(single, earlier), token(single, batch)), 1))
    alone = token(encoder, batch | {"past_mask": torch.tensor([[False], [True]])})
    torch.testing.assert_close(alone[0, :128], both[0, 128:])
    assert torch.equal(alone[1], both[1])


@pytest.mark.parametrize("colours", [False, True])
def test_every_parameter_learns(batch: dict[str, Tensor], colours: bool) -> None:
    encoder = make(replace(SETTINGS, colours=colours)).train()
    weights = torch.linspace(-1, 1, encoder.dim)
    (token(encoder, batch) * weights).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("state", "read"),
    [
        ("both", {"joints/position", "T_base_gripper/left", "T_base_gripper/right"}),
        ("joints", {"joints/position"}),
        ("grippers", {"T_base_gripper/left", "T_base_gripper/right"}),
    ],
)
def test_only_the_chosen_state_is_read(
    batch: dict[str, Tensor], state: Any, read: set[str]
) -> None:
    encoder = make(replace(SETTINGS, state=state))
    usual = encoder(batch).tokens
    images = ("rgb/", "depth/", "intrinsics/", "T_base_camera/")
    assert {key for key in encoder.keys if not key.startswith(images)} == read
    assert encoder.past_keys == ["time", *encoder.keys]
    every = ("joints/position", "T_base_gripper/left", "T_base_gripper/right")
    for key in every:
        moved = encoder(batch | {key: batch[key] + 0.1}).tokens
        assert torch.equal(moved, usual) is (key not in read), key


def test_clouds_of_images_equal_those_of_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session, which sees images, plans from what the windows of its training contain."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = make_store(tmp_path / "store", 1)
    policy = small_policy(CONTRACT, SETTINGS)
    arrays = episode(0)
    session = policy.session(0)
    encoded: list[Tensor] = []
    policy.observation_encoder.register_forward_hook(  # type: ignore[attr-defined]
        lambda _, __, output: encoded.append(output.tokens)
    )
    for step in (0, 8, 16):
        plan = session.plan(observation_at(arrays, step))
        assert plan.action.shape == (8, len(CONTRACT.action))
    data = TrainingData(store, 0, tmp_path / "run")
    windows = data.windows_for(policy, data.training)
    steps = windows.step.tolist()
    assert steps == list(range(0, 24, 4))
    found = windows.batch([steps.index(step) for step in (0, 8, 16)])
    assert not any("rgb/" in key for key in found)
    expected = policy.observation_encoder({k: torch.from_numpy(v) for k, v in found.items()})
    # Stored points are rounded to 0.1 mm.
    torch.testing.assert_close(torch.cat(encoded[:3]), expected.tokens, atol=1e-3, rtol=1e-3)


def small_policy(contract: Contract, settings: PointNetSettings) -> DiffusionPolicy:
    torch.manual_seed(0)
    chosen = DiffusionSettings(
        observation_encoder=partial(PointNetEncoder, settings),
        denoiser=partial(UnetDenoiser, SMALL_UNET),
        chunk=8,
        sampling_steps=2,
        noise_samples=1,
    )
    return DiffusionPolicy(chosen, contract, known(contract)).eval()


def test_a_hand_without_kinematics_is_moved_by_positions() -> None:
    """As in MetaWorld: unknown arm, its joints and the pose of its hand, Cartesian targets."""
    action = [
        *(ActionDimension(f"arm/{axis}", "arm", "position", "absolute", "m") for axis in "xyz"),
        ActionDimension("arm/gripper", "arm", "gripper", "absolute", "opening"),
    ]
    contract = replace(
        CONTRACT,
        embodiment="sawyer",
        joints=("j0", "j1", "gripper"),
        arms=("arm",),
        action=tuple(action),
        cameras=CONTRACT.cameras[:2],
    )
    policy = small_policy(contract, SETTINGS)
    seen = observation(0, CONTRACT)
    hand = np.eye(4, dtype=np.float32)
    seen |= {"joints/position": np.zeros(3, np.float32), "T_base_gripper/arm": hand}
    assert policy.session(0).plan(seen).action.shape == (8, 4)
    encoder = policy.observation_encoder
    assert isinstance(encoder, PointNetEncoder)
    assert encoder.clouds.embodiment is None
    assert encoder.history is not None
    assert encoder.history.steps(50.0) == (8,)


def test_the_recipe_has_the_published_values() -> None:
    """And the numbers of parameters of the public code, for 20 states and 14 actions."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = compose("train", overrides=["dataset.path=x", "training_recipe=dp3"])
    policy = composed.policy
    assert (policy.chunk, composed.evaluation.execute_steps) == (16, 8)
    assert (policy.prediction, policy.sampler, policy.sampling_steps) == ("sample", "ddim", 10)
    assert (policy.noise_levels, policy.spacing, policy.posture) == (100, "leading", None)
    encoder = policy.observation_encoder
    assert (encoder.clouds.points, encoder.features, encoder.colours) == (512, 64, False)
    assert (encoder.clouds.robot, encoder.previous_steps) == (True, 8)
    assert (composed.trainer.batch_size, list(composed.trainer.betas)) == (128, [0.95, 0.999])
    assert list(policy.denoiser.down_dims) == list(UnetSettings().down_dims)
    assert policy.denoiser.condition_dim is None
    network = make()
    with torch.device("meta"):
        unet = UnetDenoiser(
            UnetSettings(condition_dim=None),
            action_dim=14,
            chunk=policy.chunk,
            conditioning_dim=network.dim,
        )
    assert [sized(network), sized(make(replace(SETTINGS, colours=True)))] == [64_576, 212_736]
    assert sized(unet) == 255_110_286


def sized(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


CAMERA = CONTRACT.cameras[0]
INVALID: dict[str, tuple[dict[str, Any], Any, tuple[str, ...], str]] = {
    "no depth": ({}, replace(CAMERA, depth=None), (), "overhead has no depth"),
    "no calibration": (
        {},
        Camera("overhead", 32, 32, "simulated", has_geometry=False),
        (),
        "overhead has no calibration",
    ),
    "corners": ({"workspace": ((0, 0, 0), (1, 0, 1))}, CAMERA, (), "workspace"),
    "a corner": ({"workspace": ((0, 0, 0),)}, CAMERA, (), "workspace"),
    "no grippers": ({"workspace": None}, CAMERA, (GRIPPER_POSITIONS,), "workspace=.*vit"),
    "no state": ({}, CAMERA, (GRIPPER_POSITIONS,), "no grippers; allowed: joints"),
    "no joints": ({"state": "joints"}, CAMERA, ("joints/position",), "allowed: grippers"),
}


@pytest.mark.parametrize("case", INVALID)
def test_data_that_it_cannot_read_are_refused_by_what_they_lack(case: str) -> None:
    changes, camera, without, message = INVALID[case]
    contract = CONTRACT.with_cameras(camera)
    statistics = {key: each for key, each in known(contract).items() if key not in without}
    chosen = replace(SETTINGS, cameras=None, **changes)
    with pytest.raises(ValueError, match=message) as error:
        PointNetEncoder(chosen, contract, Statistics(statistics))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("state", "joint"), ("features", 0), ("previous_steps", None), ("clouds", {"point": 3})],
)
def test_invalid_settings_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        replace(SETTINGS, **{name: value})  # type: ignore[arg-type]


def test_an_empty_workspace_ends_the_plan_in_words() -> None:
    above = ((0.0, 0.0, 3.0), (0.1, 0.1, 3.1))
    policy = small_policy(CONTRACT, replace(SETTINGS, workspace=above))
    with pytest.raises(ValueError, match="no point in the workspace"):
        policy.session(0).plan(observation(0, CONTRACT))
