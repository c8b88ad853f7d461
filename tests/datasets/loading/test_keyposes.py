"""Keyposes of episodes: the action at the next change of any gripper's command, or the last one."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.policies.demonstrations import CONTRACT, STEPS, episode

from stringline.datasets.loading.gripper_commands import is_open, with_commands
from stringline.datasets.loading.keyposes import keypose_steps
from stringline.datasets.loading.mixture import MixedWindows, Source
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore

LEFT, RIGHT = 6, 13
WITHOUT_GRIPPERS = replace(CONTRACT, action=CONTRACT.action[:6])


def actions(seed: int, steps: int = 80) -> NDArray[np.float32]:
    """Returns actions of two grippers that close and open at different times."""
    random = np.random.default_rng(seed)
    action = random.normal(size=(steps, 14)).astype(np.float32)
    times = np.sort(random.choice(np.arange(5, steps - 5, 6), 6, replace=False))
    action[:, LEFT] = np.interp(np.arange(steps), times[:4], [1.0, 0.4, 0.4, 0.9])
    action[:, RIGHT] = np.interp(np.arange(steps), times[4:], [0.2, 0.8])
    return action


def naive(action: NDArray[np.float32], step: int) -> int:
    """Returns the step of the keypose by its definition."""
    commands = [is_open(action[:, place].astype(np.float64), 50.0) for place in (LEFT, RIGHT)]
    later = range(max(step, 1), len(action))
    return next((s for s in later if any(c[s] != c[s - 1] for c in commands)), len(action) - 1)


@pytest.mark.parametrize("seed", range(5))
def test_each_step_has_the_next_change_of_any_gripper(seed: int) -> None:
    action = actions(seed)
    found = keypose_steps(action, CONTRACT)
    assert found.tolist() == [naive(action, step) for step in range(len(action))]
    assert len(set(found.tolist())) == 4, "two of the left gripper, one of the right one, the end"
    assert (found == keypose_steps(with_commands(action, CONTRACT), CONTRACT)).all()


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_without_a_change_it_is_the_last_action(steps: int) -> None:
    assert keypose_steps(np.ones((steps, 14), np.float32), CONTRACT).tolist() == [steps - 1] * steps


def test_actions_without_a_gripper_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"^Keyposes need an absolute opening in the actions of 'aloha'; got left/waist "
            r"\(absolute, rad\), .*; allowed: grippers .* or policy\.keypose=0\.$"
        ),
    ):
        keypose_steps(np.ones((5, 6), np.float32), WITHOUT_GRIPPERS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    store = EpisodeStore.create(tmp_path_factory.mktemp("grasps") / "store")
    for seed in range(3):
        arrays = episode(seed)
        opening = np.interp(np.arange(STEPS), [4, 9, 15 + seed, 19], [1.0, 0.6, 0.6, 0.9])
        arrays["action"][:, LEFT] = opening
        store.write(arrays, EpisodeAttributes(CONTRACT, "move", seed, True))
    return store


@pytest.mark.parametrize("commands", [False, True])
def test_windows_contain_their_keypose(store: EpisodeStore, commands: bool) -> None:
    """With commands in place of openings if the actions have them, also in a mixture."""
    windows = Windows(store, chunk=3, gripper_commands=commands, keyposes=True)
    mixed = MixedWindows(
        [Source(store.path)], [store], chunk=3, gripper_commands=commands, keyposes=True
    )
    every = np.arange(len(windows))
    batch = windows.batch(every)
    for row, (number, step) in enumerate(zip(windows.episode, windows.step, strict=True)):
        recorded = np.array(store.episode(windows.names[number]).arrays["action"])
        shown = with_commands(recorded, CONTRACT) if commands else recorded
        np.testing.assert_array_equal(batch["keypose"][row], shown[naive(recorded, int(step))])
    assert batch["keypose"].dtype == np.float32
    assert len(np.unique(batch["keypose"], axis=0)) > len(windows.names), "several per episode"
    np.testing.assert_array_equal(mixed.batch(every)["keypose"], batch["keypose"])
    np.testing.assert_array_equal(windows[4]["keypose"], batch["keypose"][4])
    plain = Windows(store, chunk=3, gripper_commands=commands).batch(every)
    assert batch.keys() - plain.keys() == {"keypose"}
    assert all(np.array_equal(batch[key], plain[key]) for key in plain)


def test_windows_of_data_without_grippers_are_refused(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    arrays = episode(0)
    arrays["action"] = arrays["action"][:, :6]
    store.write(arrays, EpisodeAttributes(WITHOUT_GRIPPERS, "move", 0, True))
    with pytest.raises(ValueError, match="Keyposes need an absolute opening"):
        Windows(store, chunk=3, keyposes=True)
