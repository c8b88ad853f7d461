"""The expert of TransferCube, and its episodes in collection and evaluation."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from stringline.datasets.contract.contract import Contract, Observation, check_episode
from stringline.datasets.embodiments.gym_aloha import (
    GYM_ALOHA,
)
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.collect import Attempt, open_recipe_world
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.worlds.gym_aloha import TASK_MODELS, TransferCubeExpert
from stringline.sim.worlds.world_registry import (
    make_any_expert,
    open_third_party,
    open_world,
)

CUBE, INSERTION = "gym_aloha_transfer_cube", "gym_aloha_insertion"
OTHER = "aloha_sim_hand_over_banana"


class Hold:
    """Holds the current joints."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def session(self, seed: int) -> "Hold":
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        return ActionChunk(
            float(observation["time"]) + np.arange(5) / 50,
            np.tile(observation["joints/position"], (5, 1)),
        )


@pytest.mark.slow
def test_the_expert_hands_the_cube_over_and_its_episode_fits_the_contract() -> None:
    """An episode repeats by its seed."""
    world = open_third_party(
        CUBE, cameras=("overhead", "front_close"), image_size=16, frame_hz=5.0, time_limit_s=8.0
    )
    expert = make_any_expert(CUBE)
    first, again = record_episode(world, expert, 0), record_episode(world, expert, 0)
    check_episode(first.arrays, world.contract)
    assert first.success
    assert first.stage == 4
    assert sorted(set(first.arrays["stage"].tolist())) == [0, 1, 2]  # Before the last action.
    assert first.arrays["T_base_camera/overhead"].shape == (4, 4)
    assert first.arrays["T_base_camera/front_close"].ndim == 3
    for key, value in first.arrays.items():
        np.testing.assert_array_equal(value, again.arrays[key], err_msg=key)
    # Recorded actions lead to the same end.
    world.begin(0)
    assert [world.advance(action) for action in first.arrays["action"]][-1].success
    before = world.physics.get_state()
    assert world.advance(GYM_ALOHA.home).success
    np.testing.assert_array_equal(world.physics.get_state(), before)
    world.close()


@pytest.mark.slow
def test_episodes_are_collected_and_evaluated_as_those_of_own_tasks(tmp_path: Path) -> None:
    """Recipe and world come from a configuration; videos use an existing camera."""
    recipe = Recipe(
        task=CUBE,
        cameras=("angle",),
        image_size=16,
        frame_hz=5.0,
        time_limit_s=8.0,
        keep_failures=True,
        noise_rad=0.01,
    )
    store, world = EpisodeStore.create(tmp_path / "store"), open_recipe_world(recipe)
    assert (
        Attempt(recipe, store.path, 0).run(world).success
    )  # As in a worker of stringline-collect.
    world.close()
    [episode] = store.episodes()
    about = episode.attributes
    assert about.task == CUBE
    assert about.seed == 0
    assert about.success is True
    assert about.instruction == TASK_MODELS[CUBE].instruction
    assert about.extra["stages"] == list(TASK_MODELS[CUBE].stages)
    make = partial(
        open_world, CUBE, cameras=("angle",), image_size=16, frame_hz=5.0, time_limit_s=0.2
    )
    evaluation = Evaluation(Hold(about.contract), make, execute_steps=5, workers=1, videos=tmp_path)
    [result] = evaluation.run([1_000_000], tmp_path / "results.jsonl")
    assert result.success is False
    assert result.stage_name == "start"
    assert result.time_s == 0.2
    assert result.plans == 2
    assert (tmp_path / "1000000.mp4").stat().st_size > 0


def test_a_plain_expert_keeps_one_pace_and_others_are_refused() -> None:
    plain = make_any_expert(CUBE, varied=False)
    assert isinstance(plain, TransferCubeExpert)
    assert plain._paces == (1.0, 1.0)
    with pytest.raises(ValueError, match=f"no expert for the task '{OTHER}'.*{INSERTION}, {CUBE}"):
        make_any_expert(OTHER)
    with pytest.raises(ValueError, match=r"paces is \(2.0, 1.0\); allowed"):
        TransferCubeExpert(paces=(2.0, 1.0))
    world = open_third_party(INSERTION, cameras=())
    world.begin(0)
    with pytest.raises(
        ValueError, match=f"This expert is for '{CUBE}'; the world runs '{INSERTION}'"
    ):
        make_any_expert(CUBE).reset(world, np.random.default_rng(0))
    world.close()
