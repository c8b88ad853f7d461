"""An arm is displaced near an object in a share of the episodes, and experts approach again."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.demonstration import Recording, check_disturbances, record_episode
from stringline.sim.collection.disturbances import (
    DISTANCES_M,
    LONGEST_S,
    RAMP_S,
    Displacement,
)
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.tasks.task_registry import TASKS
from stringline.sim.worlds.world_registry import open_world


def recorded(world: TaskEnvironment, seed: int, share: float) -> Recording:
    options = {"start_spread": 1.0, "strict": world.task.may_be_strict}
    expert = make_expert(world.task.name)
    return record_episode(world, expert, seed, missed_grasps=share, options=options)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["hand_over_banana", "kuka_pick"], indirect=True)
def test_experts_of_both_robots_back_off_from_a_displaced_approach(world: TaskEnvironment) -> None:
    recording = recorded(world, 4, 1.0)
    missed = recording.missed_grasp
    assert missed is not None
    assert recording.success, recording.error
    commanded, measured = (
        np.array([world.embodiment.forward_kinematics(q)[missed["arm"]][:3, 3] for q in joints])
        for joints in (recording.arrays["action"], recording.arrays["joints/position"])
    )
    time = recording.arrays["time"]
    during = (time > missed["begin_s"] + RAMP_S) & (time < missed["begin_s"] + LONGEST_S)
    commanded, measured = commanded[during], measured[during]
    offset = np.array(missed["offset_m"])
    assert np.linalg.norm((measured - commanded)[:, :2], axis=1).max() > 0.8 * np.linalg.norm(
        offset
    )
    # The lowest command returns to the arm, and rises from there.
    lowest = int(commanded[:, 2].argmin())
    along = (commanded[lowest:, :2] - commanded[lowest, :2]) @ offset / (offset @ offset)
    returned = lowest + int(np.flatnonzero(along > 0.5)[0])
    assert commanded[returned:, 2].max() > commanded[returned, 2] + 0.03


@pytest.mark.slow
@pytest.mark.parametrize("world", ["hand_over_banana", "kuka_pick"], indirect=True)
def test_commands_stay_smooth(world: TaskEnvironment) -> None:
    recording = recorded(world, 4, 1.0)
    assert recording.missed_grasp is not None
    revolute = np.concatenate(
        [world.embodiment.revolute_joints[arm] for arm in world.embodiment.arms]
    )
    commands = recording.arrays["action"][:, revolute].astype(np.float64)
    acceleration = np.abs(np.diff(commands, n=2, axis=0)) * world.contract.control_hz**2
    assert acceleration.max() < 15.0


@pytest.mark.stress
@pytest.mark.parametrize("world", TASKS, indirect=True)
def test_experts_of_all_tasks_approach_again(world: TaskEnvironment) -> None:
    found = [recorded(world, seed, 1.0) for seed in range(5)]
    assert sum(each.missed_grasp is not None for each in found) >= 4
    assert sum(each.success for each in found) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("world", ["kuka_pick"], indirect=True)
def test_the_share_decides_which_seeds_miss_and_changes_no_other(world: TaskEnvironment) -> None:
    world.time_limit_s = 3.0
    plain, half = ([recorded(world, seed, share) for seed in range(4)] for share in (0.0, 0.5))
    missed = [each.missed_grasp is not None for each in half]
    assert set(missed) == {True, False}
    for before, after, displaced in zip(plain, half, missed, strict=True):
        same = np.array_equal(before.arrays["sim/state"], after.arrays["sim/state"])
        assert same is not displaced


def test_a_share_of_the_displacement_moves_and_rotates_the_gripper() -> None:
    one = Displacement("arm", 2.0, (0.03, -0.04), 0.3)
    assert np.array_equal(one.displaced(np.eye(4), 0.0), np.eye(4))
    displaced = one.displaced(np.eye(4), 1.0)
    assert np.linalg.norm(displaced[:3, 3]) == pytest.approx(0.05)
    assert np.arccos((np.trace(displaced[:3, :3]) - 1) / 2) == pytest.approx(0.3)
    assert one.along(displaced[:3, 3]) == pytest.approx(1.0)
    assert one.along(np.array([0.04, 0.03, 0.5])) == pytest.approx(0.0)


@pytest.mark.slow
def test_a_store_tells_which_episodes_missed(tmp_path: Path) -> None:
    recipe = Recipe(
        "kuka_pick", cameras=(), missed_grasps=1.0, keep_failures=True, time_limit_s=3.0
    )
    collect(recipe, tmp_path / "store", 2, workers=1)
    for episode in EpisodeStore.open(tmp_path / "store").episodes():
        extra = episode.attributes.extra
        assert extra["recipe"]["missed_grasps"] == 1.0
        distance = np.linalg.norm(extra["missed_grasp"]["offset_m"])
        assert DISTANCES_M[0] <= distance <= DISTANCES_M[1]


def test_a_share_out_of_range_and_a_third_party_task_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missed_grasps must be .*0 to 1 \(got 1\.5"):
        collect(Recipe("kuka_pick", cameras=(), missed_grasps=1.5), tmp_path / "store", 1)
    with (
        closing(open_world("gym_aloha_transfer_cube", cameras=())) as world,
        pytest.raises(ValueError, match=r"missed_grasps is 0\.1; the third-party task"),
    ):
        check_disturbances(world, lost_grasps=0.0, missed_grasps=0.1)
