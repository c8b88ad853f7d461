"""Open and close commands beside the action spaces of the arms."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.demonstrations import CONTRACT, STEPS, episode, observation_at
from torch import Tensor

from stringline import (
    ALOHA,
    IIWA14,
    IIWA14_BIMANUAL,
    ChunkPolicy,
    Contract,
    Embodiment,
    EpisodeAttributes,
    EpisodeStore,
    GripperPoses,
    OpenClose,
    RelativeJoints,
    Windows,
    load_policy,
)
from stringline.datasets.loading.mixture import MixedWindows, Source
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.window_settings import with_commands
from stringline.policies.action_spaces.space import ActionSpace, ContractActions
from stringline.policies.checkpoints.load import add_action_statistics, build_policy, save_policy
from stringline.policies.chunks.chunk import ActionPrefix
from stringline.sim.training.training_data import TrainingData

Configuration = Callable[..., dict[str, object]]
ARMS: dict[str, type[ActionSpace]] = {
    "absolute": ContractActions,
    "relative_joints": RelativeJoints,
    "gripper_poses": GripperPoses,
}
KUKA = IIWA14.contract([], 50.0)


def space_of(contract: Contract, arms: str = "absolute", **settings: Any) -> OpenClose:
    return OpenClose(contract=contract, arms=ARMS[arms](contract=contract), **settings)


def command(numbers: list[float], **settings: Any) -> list[float]:
    """Returns the decoded openings of a chunk of generated numbers of one gripper."""
    encoded = torch.zeros(1, len(numbers), 8)
    encoded[0, :, 7] = torch.tensor(numbers)
    decoded = space_of(KUKA, **settings).decode(encoded, {})
    assert torch.equal(decoded[..., :7], encoded[..., :7])
    return [round(opening, 6) for opening in decoded[0, :, 7].tolist()]


def moves(embodiment: Embodiment) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns commands (2, 6, J) near home with grippers open or closed, and measured joints."""
    drawn = np.random.default_rng(0).uniform(-0.01, 0.01, (2, 7, len(embodiment.joints)))
    steps = embodiment.home + np.cumsum(drawn, axis=1)
    steps[..., list(embodiment.grippers.values())] = (np.arange(7) % 3 > 0)[:, None]
    joints = torch.from_numpy(np.clip(steps, embodiment.lower, embodiment.upper))
    return joints[:, 1:], {"joints/position": joints[:, 0]}


def write_store(path: Path, *, still: bool = False) -> EpisodeStore:
    """Writes motions whose left gripper closes on an object and opens; the right one is closed."""
    store = EpisodeStore.create(path)
    for seed in range(3):
        arrays = episode(seed)
        opening = np.interp(np.arange(STEPS), [4, 9, 15 + seed, 19], [1.0, 0.6, 0.6, 0.9])
        arrays["action"][:, 6] = 0.9 if still else opening
        arrays["action"][:, 13] = 0.2
        store.write(arrays, EpisodeAttributes(CONTRACT, "move", seed, True))
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return write_store(tmp_path_factory.mktemp("grasps") / "store")


def statistics_for(store: EpisodeStore, model: dict[str, object]) -> Statistics:
    episodes = store.episodes()
    return add_action_statistics(Statistics.of_episodes(episodes), model, CONTRACT, episodes)


@pytest.mark.parametrize("embodiment", [ALOHA, IIWA14, IIWA14_BIMANUAL], ids=lambda one: one.name)
@pytest.mark.parametrize("arms", ARMS)
def test_commands_are_restored(arms: str, embodiment: Embodiment) -> None:
    """A round trip in each action space of the arms, whose numbers are those without commands."""
    contract = embodiment.contract([], 50.0)
    action, observation = moves(embodiment)
    space = space_of(contract, arms)
    encoded = space.encode(action, observation)
    plain = ARMS[arms](contract=contract).encode(action, observation)
    assert encoded.shape == plain.shape == (2, 6, space.dim)
    others = [place for place in range(space.dim) if place not in space.openings]
    assert torch.equal(encoded[..., others], plain[..., others])
    assert set(encoded[..., space.openings].unique().tolist()) == {-1.0, 1.0}
    found = space.decode(encoded, observation)
    grippers = list(embodiment.grippers.values())
    assert torch.equal(found[..., grippers], action[..., grippers])
    poses, expected = (embodiment.forward_kinematics(q.numpy()) for q in (found, action))
    for arm in embodiment.arms:
        np.testing.assert_allclose(poses[arm], expected[arm], rtol=0, atol=3e-3)


@pytest.mark.parametrize(
    ("numbers", "openings"),
    [
        ([1, 0.9, -0.9, -1], [1, 1, 0, 0]),
        ([1, 0.1, -0.19, -0.21, 0.19, 0.3], [1, 1, 1, 0, 0, 1]),
        ([-0.05, 0.1, 0.25], [0, 0, 1]),
        ([0.05, -0.1, -0.25], [1, 1, 0]),
        ([-7.0, 7.0], [0, 1]),
    ],
)
def test_small_numbers_do_not_change_the_command(
    numbers: list[float], openings: list[float]
) -> None:
    assert command(numbers) == openings


def test_settings_of_the_targets() -> None:
    assert command([1, -1], closed=0.1, opened=0.4) == [0.4, 0.1]
    assert command([0.1, -0.1, 0.1], hysteresis=0.0) == [1, 0, 1]
    space = space_of(KUKA, opened=0.4)
    action = torch.zeros(1, 3, 8)
    action[0, :, 7] = torch.tensor([0.0, 0.4, 1.0])
    assert space.encode(action, {})[0, :, 7].tolist() == [-1, 1, 1], (
        "commands of the data and executed actions"
    )


@given(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=20))
def test_decoding_agrees_with_a_loop(numbers: list[float]) -> None:
    """Against the rule in words: a switch that only numbers beyond the hysteresis move."""
    is_open, expected = numbers[0] >= 0, []
    for number in numbers:
        is_open = number >= 0 if abs(number) > np.float32(0.2) else is_open
        expected.append(float(is_open))
    assert command(numbers) == expected


def test_grippers_do_not_share_their_commands() -> None:
    encoded = torch.zeros(1, 3, 14)
    encoded[0, :, 6] = torch.tensor([1.0, -1.0, 0.0])
    encoded[0, :, 13] = torch.tensor([-1.0, 0.0, 1.0])
    decoded = space_of(CONTRACT).decode(encoded, {})
    assert decoded[0, :, [6, 13]].tolist() == [[1, 0], [0, 0], [0, 1]]


def test_windows_contain_commands(store: EpisodeStore) -> None:
    """Those of the whole episode, also in windows without a motion of the gripper."""
    plain = Windows(store, chunk=6, cameras=["overhead"])
    windows = Windows(store, chunk=6, cameras=["overhead"], gripper_commands=True)
    mixed = MixedWindows([Source(store.path)], [store], chunk=6, gripper_commands=True)
    every = np.arange(len(windows))
    batch, recorded = windows.batch(every), plain.batch(every)
    np.testing.assert_array_equal(mixed.batch(every)["action"], batch["action"])
    for row, (number, step) in enumerate(zip(windows.episode, windows.step, strict=True)):
        whole = with_commands(episode_actions(store, int(number)), CONTRACT)
        ahead = np.minimum(np.arange(step, step + 6), STEPS - 1)
        np.testing.assert_array_equal(batch["action"][row], whole[ahead])
    joints = [place for place in range(14) if place not in (6, 13)]
    np.testing.assert_array_equal(batch["action"][..., joints], recorded["action"][..., joints])
    at_rest = (windows.step == 12) & (windows.episode == 2)
    assert (batch["action"][at_rest, :4, 6] == 0).all()
    assert recorded["action"][at_rest, :4, 6].min() > 0.5, "a wide object"


def episode_actions(store: EpisodeStore, number: int) -> np.ndarray:
    return np.array(store.episode(store.names()[number]).arrays["action"])


@pytest.mark.parametrize("normalisation", ["min_max", "mean_std", "quantiles"])
def test_every_normaliser_leaves_commands_as_they_are(
    normalisation: str, store: EpisodeStore, configuration: Configuration
) -> None:
    """A gripper that closes for a short time, and one that never opens."""
    chosen = ("+gripper=open_close", f"+normalisation={normalisation}")
    model = configuration(*chosen)
    policy = build_policy(model, CONTRACT, statistics_for(store, model))
    assert isinstance(policy, ChunkPolicy)
    commands = torch.tensor([-1.0, 1.0])[:, None].expand(2, 14)
    there = policy.action_range.normalise(commands)[:, [6, 13]]
    torch.testing.assert_close(there, commands[:, :2], rtol=0, atol=1e-6)


@pytest.mark.parametrize("arms", ARMS)
def test_a_policy_trains_and_plans_with_commands(
    arms: str, store: EpisodeStore, configuration: Configuration, tmp_path: Path
) -> None:
    """Composed by names; the checkpoint restores it without the data."""
    model = configuration(f"+action={arms}", "+gripper=open_close", "policy.chunk=6")
    data = TrainingData(store, held_out=0)
    policy = build_policy(model, CONTRACT, data.statistics(model))
    key = f"action/{ARMS[arms].name}/open_close/6"
    assert policy.statistics[key].min.shape == (policy.action_dim,)
    windows = data.windows_for(policy, data.training)
    batch = {key: torch.from_numpy(value) for key, value in windows.batch([0, 3]).items()}
    assert set(batch["action"][..., 6].unique().tolist()) <= {0.0, 1.0}
    policy.loss(batch).backward()
    policy.eval()
    predicted = policy.predict(batch, torch.Generator().manual_seed(0))
    assert set(predicted[..., [6, 13]].unique().tolist()) <= {0.0, 1.0}
    save_policy(tmp_path / "c", policy, model, {})
    again = load_policy(tmp_path / "c")
    assert isinstance(again.action_space, OpenClose)
    assert type(again.action_space.space) is ARMS[arms]
    assert again.action_space.hysteresis == 0.2
    torch.testing.assert_close(
        again.predict(batch, torch.Generator().manual_seed(0)), predicted, rtol=0, atol=0
    )


def test_a_prefix_of_executed_actions_is_kept(
    store: EpisodeStore, configuration: Configuration
) -> None:
    """Real-time chunking continues an executed closing, also with another target opening."""
    model = configuration("+gripper=open_close", "policy.gripper_space.opened=0.4")
    policy = build_policy(model, CONTRACT, statistics_for(store, model)).eval()
    assert isinstance(policy, ChunkPolicy)
    observation = observation_at(episode(0), 4)
    action = np.zeros((3, 14), np.float32)
    action[:, 6] = [0.4, 0.0, 0.0]
    time = float(observation["time"]) + np.arange(3) / 50
    kept = ActionPrefix(time, action, np.ones(3))
    found = policy.session(0).plan(observation, kept)
    np.testing.assert_array_equal(found.action[:3], action)
    normalised = policy.normalised_prefix(kept.aligned(found.time), policy.observed(observation))
    assert normalised.action[0, :3, 6].tolist() == [1, -1, -1]


def test_the_default_has_no_commands(store: EpisodeStore, configuration: Configuration) -> None:
    plain = configuration()
    assert configuration("+gripper=opening") == plain
    assert "gripper_space" not in plain
    data = TrainingData(store, held_out=0)
    policy = build_policy(plain, CONTRACT, data.statistics(plain))
    batch = data.windows_for(policy, data.training).batch([0])
    np.testing.assert_array_equal(batch["action"][0], episode_actions(store, 0)[:8])


def test_grippers_that_cannot_do_it_are_refused(
    configuration: Configuration, tmp_path: Path
) -> None:
    turned = replace(CONTRACT, action=CONTRACT.action[:6])
    with pytest.raises(
        ValueError,
        match=(
            r"need an absolute opening in the actions of 'aloha'; got left/waist \(absolute, rad\),"
            r" .*; allowed: grippers with kind gripper, mode absolute and unit opening, or "
            r"gripper=opening\.$"
        ),
    ):
        OpenClose(contract=turned, arms=ContractActions(contract=turned))
    relative = replace(CONTRACT.action[6], mode="relative")
    with pytest.raises(ValueError, match=r"got left/gripper \(relative, opening\); allowed"):
        space_of(replace(CONTRACT, action=(relative,)))
    wrongs: list[dict[str, Any]] = [
        {"closed": 0.5, "opened": 0.5},
        {"opened": 1.1},
        {"closed": -0.1},
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"allowed: 0 <= closed < opened <= 1\.$"):
            space_of(CONTRACT, **wrong)
    with pytest.raises(
        ValueError, match=r"hysteresis must be a number of at least 0 and below 1 \(got 1\)"
    ):
        space_of(CONTRACT, hysteresis=1)
    still = write_store(tmp_path / "still", still=True)
    with pytest.raises(
        ValueError,
        match=(
            r"No gripper opens or closes in the data \(left/gripper stays open, right/gripper "
            r"stays closed\); allowed for open and close commands: .* choose gripper=opening\.$"
        ),
    ):
        statistics_for(still, configuration("+gripper=open_close"))
