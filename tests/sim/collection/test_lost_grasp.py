"""A gripper opens during a grasp in a share of the episodes, and every expert grasps again."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.sim.in_process import InProcess

from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.demonstration import Recording, record_episode
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.tasks.task_registry import TASKS


def recorded(world: TaskEnvironment, seed: int, share: float) -> Recording:
    options = {"start_spread": 1.0, "strict": world.task.may_be_strict}
    expert = make_expert(world.task.name)
    return record_episode(world, expert, seed, lost_grasps=share, options=options)


def assert_recovered(world: TaskEnvironment, seed: int) -> None:
    """Asserts that the gripper opened against its command, and that the expert succeeded."""
    recording = recorded(world, seed, 1.0)
    lost = recording.lost_grasp
    assert lost is not None
    assert recording.success, recording.error
    time = recording.arrays["time"]
    gripper = world.embodiment.grippers[lost["arm"]]
    during = (time >= lost["begin_s"]) & (time < lost["begin_s"] + lost["seconds"])
    commanded = recording.arrays["action"][during, gripper]
    measured = recording.arrays["joints/position"][during, gripper]
    assert abs(int(during.sum()) - 20) <= 1
    assert (measured - commanded).max() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("world", ["hand_over_banana", "kuka_pick"], indirect=True)
def test_experts_of_both_robots_grasp_again(world: TaskEnvironment) -> None:
    assert_recovered(world, 3)


@pytest.mark.stress
@pytest.mark.parametrize("world", TASKS, indirect=True)
def test_experts_of_all_tasks_grasp_again(world: TaskEnvironment) -> None:
    found = [recorded(world, seed, 1.0) for seed in range(5)]
    assert sum(each.lost_grasp is not None for each in found) >= 4
    assert sum(each.success for each in found) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("world", ["kuka_pick"], indirect=True)
def test_the_share_decides_which_seeds_lose_a_grasp_and_changes_no_other(
    world: TaskEnvironment,
) -> None:
    world.time_limit_s = 4.0
    plain, half = ([recorded(world, seed, share) for seed in (1, 4)] for share in (0.0, 0.5))
    lost = [each.lost_grasp is not None for each in half]
    assert lost == [True, False]
    for before, after, opened in zip(plain, half, lost, strict=True):
        same = np.array_equal(before.arrays["sim/state"], after.arrays["sim/state"])
        assert same is not opened


@pytest.mark.slow
def test_a_store_tells_which_episodes_lost_a_grasp(tmp_path: Path) -> None:
    recipe = Recipe("kuka_pick", cameras=(), lost_grasps=1.0, keep_failures=True, time_limit_s=4.0)
    with closing(InProcess()) as here:
        collect(recipe, tmp_path, 2, cluster=here)
    for episode in EpisodeStore.open(tmp_path).episodes():
        extra = episode.attributes.extra
        assert extra["recipe"]["lost_grasps"] == 1.0
        assert extra["lost_grasp"]["arm"] == "arm"
        assert 0 < extra["lost_grasp"]["begin_s"] < 4.0


def test_a_share_beyond_1_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lost_grasps must be .*0 to 1 \(got 1\.5"):
        collect(Recipe("kuka_pick", cameras=(), lost_grasps=1.5), tmp_path / "store", 1)
    assert not (tmp_path / "store").exists()
