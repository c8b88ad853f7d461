"""The keypose policy: finite losses, learning, and predictions that depend on seeds alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.policies.conftest import observation
from torch import Tensor

from stringline import ALOHA, IIWA14, Camera, KeyposePolicy, Trainer, load_policy
from stringline.datasets.contract.contract import Array
from stringline.datasets.loading.statistics import GRIPPER_POSITIONS, Statistics, statistics_of
from stringline.policies.algorithms.keypose_policy import (
    acting_sets,
    keypose_of,
    with_known_set,
)
from stringline.policies.checkpoints.load import build_policy, save_policy
from stringline.policies.chunks.chunk import ActionPrefix
from stringline.policies.networks.keypose_head import FLAGS, VOTED
from stringline.policies.probes.probes import keypose_errors

ARMS = ALOHA.arms
CONTRACT = ALOHA.contract(
    [Camera(name, 32, 32, "simulated") for name in ("overhead", "wrist_left")], 50.0
)
SMALL = (
    "policy.observation_encoder.dim=48",
    "policy.observation_encoder.depth=1",
    "policy.observation_encoder.voxels.tokens=24",
    "policy.observation_encoder.clouds.points=128",
    "policy.voxel_samples=2",
)
IMAGES = (
    "policy/observation_encoder=places",
    "+depth=colours",
    "policy.observation_encoder.dim=64",
    "policy.observation_encoder.depth=1",
)
MakePolicy = Callable[..., KeyposePolicy]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def statistics() -> Statistics:
    rows = np.stack([ALOHA.lower, ALOHA.upper])
    box = np.array([[-0.4, -0.3, 0.0], [0.4, 0.3, 0.4]])
    known = {key: statistics_of(lambda: iter([rows])) for key in ("action", "joints/position")}
    return Statistics(known | {GRIPPER_POSITIONS: statistics_of(lambda: iter([box]))})


def configuration(*overrides: str) -> dict[str, object]:
    chosen = overrides if "policy/observation_encoder=places" in overrides else (*SMALL, *overrides)
    swapped = {override.split("=")[0] for override in chosen}
    defaults = [
        each
        for each in (
            "+policy=keyposes",
            "+encoder=circulant",
            "+coordinates=metric",
            "+normalisation=none",
        )
        if each.split("=")[0] not in swapped
    ]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = compose(overrides=[*defaults, *chosen])
    model = OmegaConf.to_container(composed.policy, resolve=True)
    assert isinstance(model, dict)
    return {str(key): value for key, value in model.items()}


def make(*overrides: str) -> KeyposePolicy:
    torch.manual_seed(0)
    policy = build_policy(configuration(*overrides), CONTRACT, statistics())
    assert isinstance(policy, KeyposePolicy)
    return policy.eval()


def poses(count: int, arms: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    found = torch.eye(4).repeat(count, arms, 1, 1)
    turn = torch.linalg.qr(torch.randn(count, arms, 3, 3, generator=generator))[0]
    turn[..., 0] *= torch.linalg.det(turn)[..., None]
    found[..., :3, :3] = turn
    found[..., :3, 3] = 0.2 * torch.rand(count, arms, 3, generator=generator)
    return found


def targets(count: int) -> dict[str, Tensor]:
    pose = poses(count, len(ARMS))
    found = {"keypose/pose": pose}
    for name, height in (("approach", 0.06), ("corner", 0.1), ("departure", 0.07)):
        found[f"keypose/{name}"] = pose.clone()
        found[f"keypose/{name}"][..., 2, 3] += height
    return found | {
        "keypose/acting": torch.tensor([[True, False]]).repeat(count, 1),
        "keypose/before": torch.full((count, 2), 0.8),
        "keypose/after": torch.full((count, 2), 0.1),
        "keypose/number": torch.zeros(count, dtype=torch.int64),
    }


def clouds(count: int) -> dict[str, Tensor]:
    """Returns a batch with clouds, in which the keypose lies among the points."""
    generator = torch.Generator().manual_seed(4)
    found = targets(count)
    points = 0.4 * torch.rand(count, 128, 3, generator=generator) - 0.1
    points[:, :20] = found["keypose/pose"][:, :1, :3, 3] + 0.01 * torch.randn(
        count, 20, 3, generator=generator
    )
    grippers = poses(count, 2)
    return found | {
        "cloud/points": points,
        "cloud/colours": torch.randint(0, 255, (count, 128, 3), generator=generator).byte(),
        "cloud/held": torch.zeros(count, 128, dtype=torch.uint8),
        "cloud/count": torch.full((count,), 128),
        "cloud/support": torch.full((count,), -0.1),
        "joints/position": torch.tensor(ALOHA.home).float().repeat(count, 1),
        **{f"T_base_gripper/{arm}": grippers[:, number] for number, arm in enumerate(ARMS)},
    }


def seen(seed: int, time: float = 0.0) -> dict[str, Array]:
    return observation(seed, CONTRACT) | {"time": np.asarray(time)}


def images(count: int) -> dict[str, Tensor]:
    found = [seen(number) for number in range(count)]
    return targets(count) | {
        key: torch.from_numpy(np.stack([each[key] for each in found])) for key in found[0]
    }


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("policy.refinement=none",),
        ("+encoder=cayley",),
        ("+encoder=rope_mixed",),
        ("+encoder=none",),
        ("policy.observation_encoder.gripper_features=false",),
        ("policy.observation_encoder.place_features=false",),
        ("policy.augmentation.mirror=true", "policy.augmentation.yaw_rad=0.5"),
        IMAGES,
    ],
)
def test_the_loss_is_finite_and_reaches_all_parameters(overrides: tuple[str, ...]) -> None:
    policy = make(*overrides).train()
    batch = images(3) if overrides is IMAGES else clouds(3)
    loss = policy.loss(batch)
    assert loss.isfinite()
    loss.backward()
    without = [
        name
        for name, each in policy.named_parameters()
        if not name.endswith("unplaced_mark")  # Of tokens without a place, which are not there.
        and (each.grad is None or not each.grad.isfinite().all() or not each.grad.abs().sum() > 0)
    ]
    assert without == []


def test_frames_after_the_last_event_train_only_the_flags() -> None:
    """Their other targets have no meaning."""
    policy = make()
    batch = clouds(3)
    batch["keypose/number"][:] = -1
    batch["keypose/acting"][:] = False
    parts = policy.losses(batch)
    wild = dict(batch) | {"keypose/pose": 100 * batch["keypose/pose"]}
    for name, value in policy.losses(wild).items():
        if name != "denoised":
            torch.testing.assert_close(value, parts[name])
    assert {name for name, value in parts.items() if value > 0} == {"acts", "moves"}


@pytest.mark.parametrize("overrides", [(), IMAGES])
def test_predictions_depend_on_the_generator_alone(overrides: tuple[str, ...]) -> None:
    policy = make(*overrides)
    batch = images(2) if overrides is IMAGES else clouds(2)

    def predict(seed: int) -> Tensor:
        torch.manual_seed(torch.seed() % 1000)
        return policy.predict(batch, torch.Generator().manual_seed(seed))

    assert torch.equal(predict(1), predict(1))
    assert not torch.equal(predict(1), predict(2))
    row = keypose_of(predict(1)[0].numpy())
    turn = row.pose[..., :3, :3]
    np.testing.assert_allclose(turn @ turn.swapaxes(-1, -2), np.eye(3) + 0 * turn, atol=1e-6)
    assert (np.diff(row.share, axis=-1) <= 1e-6).all()


@pytest.mark.slow
def test_batched_plans_equal_plans_one_by_one() -> None:
    """Also while no session wants a prediction, which draws no numbers then."""
    policy = make()
    seeds = (3, 1, 2)
    alone = {seed: policy.session(seed) for seed in seeds}
    sessions = [policy.session(seed) for seed in seeds]
    times = {seed: 0.0 for seed in seeds}
    joints = {seed: seen(seed)["joints/position"] for seed in seeds}
    for _ in range(4):
        views = {
            seed: seen(seed, times[seed]) | {"joints/position": joints[seed]} for seed in seeds
        }
        expected = {seed: alone[seed].plan(views[seed]) for seed in seeds}
        plans = policy.plan_batch(sessions, list(views.values()), [None] * 3)
        for seed, plan in zip(seeds, plans, strict=True):
            np.testing.assert_allclose(plan.action, expected[seed].action, atol=1e-4)
            joints[seed] = expected[seed].action[16]
            times[seed] += 0.32


def test_a_prefix_is_kept_to_the_bit() -> None:
    policy = make()
    session = policy.session(0)
    first = session.plan(seen(0))
    later = seen(0, 0.16) | {"joints/position": first.action[8]}
    prefix = ActionPrefix(first.time[8:20], first.action[8:20], np.ones(12))
    second = session.plan(later, prefix)
    np.testing.assert_array_equal(second.action[:12], first.action[8:20])
    step = np.abs(np.diff(second.action[:, :6], axis=0)).max(axis=1)
    assert step[11] < 2 * max(step[10], step[12]) + 1e-3


def test_a_checkpoint_predicts_the_same(tmp_path: Path) -> None:
    policy = make()
    save_policy(tmp_path / "checkpoint", policy, configuration(), {})
    loaded = load_policy(tmp_path / "checkpoint")
    batch = clouds(2)
    expected = policy.predict(batch, torch.Generator().manual_seed(0))
    assert torch.equal(loaded.predict(batch, torch.Generator().manual_seed(0)), expected)
    assert (
        loaded.statistics[GRIPPER_POSITIONS].to_dict() == statistics()[GRIPPER_POSITIONS].to_dict()
    )


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(), ("policy.refinement=none",)])
def test_it_learns_one_example(overrides: tuple[str, ...]) -> None:
    policy = make(*overrides).train()
    object.__setattr__(policy.settings.augmentation, "hold", 0.0)
    object.__setattr__(policy.settings.augmentation, "shift_m", 0.0)
    object.__setattr__(policy.settings.augmentation, "yaw_rad", 0.0)
    batch = clouds(2)
    optimiser = torch.optim.AdamW(policy.parameters(), 2e-3)
    for _ in range(250):
        optimiser.zero_grad()
        policy.loss(batch).backward()
        optimiser.step()
    policy.eval()
    errors = keypose_errors(policy.predict(batch, torch.Generator().manual_seed(0)), batch)
    assert errors["nearest_mm"].max() < 45
    assert errors["rotation_deg"].max() < 15
    assert errors["right_arm"].min() == 1
    row = keypose_of(policy.predict(batch, torch.Generator().manual_seed(0))[0].numpy())
    assert row.acting() == (0,)
    np.testing.assert_allclose(row.approach[0, 0] - row.pose[0, 0, :3, 3], [0, 0, 0.06], atol=0.02)
    assert row.after[0, 0] == pytest.approx(0.1, abs=0.08)


@pytest.mark.parametrize(
    ("acts", "known", "expected"),
    [
        ((0.9, 0.6), [[1, 0], [0, 1]], (0,)),
        ((0.6, 0.9), [[1, 0], [0, 1]], (1,)),
        ((0.9, 0.6), [[1, 0], [1, 1]], (0, 1)),
        ((0.9, 0.2), [[1, 1]], (0, 1)),
        ((0.4, 0.2), [[1, 1]], (0,)),
        ((0.9, 0.2), [[1, 0], [1, 1]], (0,)),
    ],
)
def test_arms_act_together_only_as_in_training(
    acts: tuple[float, float], known: list[list[int]], expected: tuple[int, ...]
) -> None:
    shown = acting_sets(np.array(known, bool)).max(axis=0) > 0
    row = np.zeros((2, 1, VOTED + FLAGS + 1), np.float32)
    row[..., 3] = row[..., 7] = 1.0
    chances = np.array(acts)
    row[:, 0, VOTED] = row[:, 0, VOTED + 1] = np.log(chances / (1 - chances))
    found = with_known_set(keypose_of(row), shown)
    assert found.acting(0.3) == expected
    for arm in range(2):
        assert arm in expected or found.moves[arm] < 0.5 or acts[arm] < 0.5


class Examples:
    """Batches of examples; a stopped training ends at a step."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[dict[str, Tensor]]:
        known = clouds(6)
        for step in range(first_step, last_step):
            if step == self.stop:
                raise KeyboardInterrupt
            yield {key: value[step % 3 : step % 3 + 3] for key, value in known.items()}


@pytest.mark.slow
def test_a_resumed_training_equals_an_uninterrupted_one_to_the_bit(tmp_path: Path) -> None:
    """Augmentation and draws of voxels included."""

    def train(name: str, stop: int | None = None) -> dict[str, Tensor]:
        policy = make().train()
        trainer = Trainer(steps=8, batch_size=3, save_every=4, seed=5)
        trainer.fit(policy, Examples(stop), tmp_path / name, save_model=lambda model: None)
        return policy.state_dict()

    whole = train("whole")
    with pytest.raises(KeyboardInterrupt):
        train("stopped", 6)
    for name, value in train("stopped").items():
        assert torch.equal(value, whole[name]), name


ONE_ARM = IIWA14.contract([Camera("overhead", 32, 32, "simulated")], 50.0)
UNFIT = {
    "robot_of_somebody": ((), replace(CONTRACT, embodiment="robot_of_somebody"), None),
    "absolute": (
        (),
        replace(CONTRACT, action=tuple(replace(each, mode="relative") for each in CONTRACT.action)),
        None,
    ),
    "mirror": (("policy.augmentation.mirror=true",), ONE_ARM, None),
    "gripper": (
        (),
        CONTRACT,
        Statistics(
            {"joints/position": statistics_of(lambda: iter([np.stack([ALOHA.lower, ALOHA.upper])]))}
        ),
    ),
}


@pytest.mark.parametrize("words", UNFIT)
def test_contracts_and_statistics_that_do_not_fit_are_refused(words: str) -> None:
    overrides, contract, stored = UNFIT[words]
    with pytest.raises(ValueError, match=words):
        build_policy(configuration(*overrides), contract, stored or statistics())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((*IMAGES, "policy.augmentation.mirror=true"), "mirror"),
        ((*IMAGES, "+frames=grippers"), "base"),
        ((*IMAGES, "+coordinates=grid"), "metr|place"),
        (("policy.refinement=flow",), "refinement"),
        (("policy.events.stops=sometimes",), "stops"),
        (("policy.modes=0",), "modes"),
        (("policy.vote_m=-1",), "vote_m"),
        (("policy.noise.position_m=-0.1",), "position_m"),
        (("+policy.motion.sped=1",), "sped"),
        (("+policy.normalisation=bounds",), "normalisation"),
    ],
)
def test_what_does_not_fit_is_refused(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(*overrides)
