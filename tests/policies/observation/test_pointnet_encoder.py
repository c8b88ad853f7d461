"""Farthest point sampling by a naive reference, and the clouds that it makes of a scene.

DP3's observation encoder: invariances of its clouds, the second observation, other contracts.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from tests.datasets.loading.test_workspace_clouds import (
    SEEN_BY,
    WORKSPACE,
    maker,
    scene,
)
from tests.policies.conftest import observation
from tests.policies.demonstrations import CAMERAS, CONTRACT, episode, make_store, observation_at
from torch import Tensor, nn

from stringline import Camera, Contract, PointNetEncoder, UnetDenoiser, Windows
from stringline.datasets.contract.contract import ActionDimension, Array
from stringline.datasets.loading.statistics import GRIPPER_POSITIONS, Statistics, statistics_of
from stringline.datasets.loading.workspace_clouds import Cloud, Workspace
from stringline.policies.algorithms.diffusion import DiffusionPolicy, DiffusionSettings
from stringline.policies.networks.unet import UnetSettings
from stringline.policies.observation.pointnet_encoder import (
    PointNetSettings,
    SampledCloudMaker,
    SampledCloudSettings,
    farthest_points,
)
from stringline.sim.training.training_data import TrainingData

SEEN = replace(CONTRACT, cameras=tuple(SEEN_BY))


def sampled(**settings: object) -> SampledCloudMaker:
    return SampledCloudMaker(SEEN_BY, WORKSPACE, SEEN, SampledCloudSettings(**settings))  # type: ignore[arg-type]


def places(cloud: Cloud) -> set[tuple[float, ...]]:
    return {tuple(row) for row in cloud.points[: cloud.count].tolist()}


def gaps(points: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns the distance of each point from the nearest chosen one."""
    found: np.ndarray = np.linalg.norm(points[:, None] - points[chosen], axis=-1).min(axis=1)
    return found


@pytest.mark.parametrize("count", [1, 2, 17, 60])
def test_each_point_is_the_farthest_from_those_before(count: int) -> None:
    points = np.random.default_rng(count).normal(size=(60, 3))
    chosen = farthest_points(points, count)
    assert len(set(chosen.tolist())) == count
    middle = np.linalg.norm(points - points.mean(axis=0), axis=1)
    assert middle[chosen[0]] == middle.max()
    for number in range(1, count):
        away = gaps(points, chosen[:number])
        assert away[chosen[number]] == pytest.approx(away.max())


def test_the_largest_gap_is_at_most_twice_the_least_possible_one() -> None:
    points = np.random.default_rng(1).random((9, 3))
    for count in (2, 3):
        choices = np.stack(np.meshgrid(*[np.arange(9)] * count), -1).reshape(-1, count)
        least = min(gaps(points, choice).max() for choice in choices)
        assert gaps(points, farthest_points(points, count)).max() <= 2 * least


def test_the_order_of_the_points_does_not_matter() -> None:
    points = np.random.default_rng(2).random((200, 3)).astype(np.float32)
    order = np.random.default_rng(3).permutation(200)
    first, second = (each[farthest_points(each, 40)] for each in (points, points[order]))
    np.testing.assert_array_equal(first, second)


def test_few_points_are_all_chosen() -> None:
    points = np.random.default_rng(4).random((5, 3))
    assert sorted(farthest_points(points, 9).tolist()) == list(range(5))
    assert farthest_points(points, 2, first=3)[0] == 3


def test_a_sampled_cloud_has_the_points_above_the_support_that_are_far_apart() -> None:
    every = maker()(scene())
    cloud = sampled(points=64)(scene())
    assert cloud.count == 64
    assert places(cloud) < places(every)
    assert (cloud.points[:, 2] > cloud.support + 0.005).all()
    above = every.points[: every.count]
    above = above[above[:, 2] > every.support + 0.005]
    fewer = above[np.random.default_rng(0).choice(len(above), 64, replace=False)]
    kept, drawn = (
        np.linalg.norm(above[:, None] - each, axis=-1).min(axis=1).max()
        for each in (cloud.points, fewer)
    )
    assert kept < 0.6 * drawn
    low = sampled(points=64, support=True)(scene()).points[:, 2]
    assert (low < cloud.support + 0.005).sum() > 10


def test_an_empty_table_is_sampled_itself() -> None:
    box = Workspace((0.15, -0.3, -0.05), (0.3, 0.3, 0.4))
    cloud = SampledCloudMaker(SEEN_BY, box, SEEN, SampledCloudSettings(points=32))(scene())
    assert cloud.count == 32
    assert np.abs(cloud.points[:, 2]).max() < 0.005


def test_clouds_are_the_same_in_each_call_and_decided_by_their_settings() -> None:
    first, second = (sampled(points=64)(scene()) for _ in range(2))
    assert first.points.tobytes() == second.points.tobytes()
    makers = [
        maker(),
        sampled(),
        sampled(points=64),
        sampled(support=True),
        sampled(robot=False),
    ]
    assert len({each.digest for each in makers}) == len(makers)
    assert sampled().embodiment is None
    assert sampled(robot=False).embodiment is not None


def test_a_cloud_with_too_few_points_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    few = sampled(points=1024, voxel_m=0.05)
    with caplog.at_level(logging.WARNING):
        clouds = [few(scene()) for _ in range(2)]
    assert len(caplog.records) == 1
    assert f"{clouds[0].count} points; 1024" in caplog.text
    assert "voxel_m" in caplog.text
    assert (clouds[0].points[clouds[0].count :] == 0).all()


def test_a_robot_without_kinematics_cannot_be_removed() -> None:
    unknown = replace(SEEN, embodiment="sawyer")
    SampledCloudMaker(SEEN_BY, WORKSPACE, unknown, SampledCloudSettings())
    with pytest.raises(ValueError, match=r"clouds.robot .*sawyer.*true"):
        SampledCloudMaker(SEEN_BY, WORKSPACE, unknown, SampledCloudSettings(robot=False))


def test_windows_contain_the_clouds_of_their_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = make_store(tmp_path / "store", 2)
    wide = Workspace((-2.0, -2.0, -2.0), (2.0, 2.0, 2.0))
    cameras = [CONTRACT.camera(name) for name in CAMERAS[:2]]
    clouds = SampledCloudMaker(
        cameras, wide, CONTRACT, SampledCloudSettings(points=32, voxel_m=0.05)
    )
    chosen = {"chunk": 4, "cameras": CAMERAS[:2], "clouds": clouds}
    every = Windows(store, **chosen, clouds_hz=50.0, past=(8,))
    assert every.step.tolist() == 2 * list(range(0, 24, 4))
    batch = every.batch(np.arange(12))
    assert batch["past/cloud/points"].shape == (12, 1, 32, 3)
    assert not any(key.startswith(("past/rgb", "past/depth")) for key in batch)
    for kind in ("points", "colours", "count"):
        now = batch[f"cloud/{kind}"].reshape(2, 6, *batch[f"cloud/{kind}"].shape[1:])
        past = batch[f"past/cloud/{kind}"][:, 0].reshape(now.shape)
        np.testing.assert_array_equal(past[:, 2:], now[:, :-2])
        np.testing.assert_array_equal(past[:, :2], now[:, [0, 0]])
    assert batch["past_mask"][:, 0].tolist() == 2 * [False, False, True, True, True, True]
    assert Windows(store, **chosen).step.tolist() == 2 * [0, 8, 16]
    assert not any(key.startswith("past") for key in Windows(store, **chosen)[0])


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
