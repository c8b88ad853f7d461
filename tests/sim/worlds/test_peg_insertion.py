"""The expert of gym-aloha's Insertion inserts the peg, also after it has lost it."""

from collections.abc import Iterator

import numpy as np
import pytest

from stringline.datasets.contract.contract import check_episode
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.worlds.gym_aloha import InsertionExpert
from stringline.sim.worlds.third_party_environment import ThirdPartyEnvironment
from stringline.sim.worlds.world_registry import make_any_expert, open_third_party

TASK = "gym_aloha_insertion"
PEG_QPOS = slice(16, 23)  # In gym-aloha's own frame, y of the middle of the table 0.5 m.


@pytest.fixture(scope="module")
def world() -> Iterator[ThirdPartyEnvironment]:
    world = open_third_party(
        TASK, cameras=("overhead",), image_size=16, frame_hz=5.0, time_limit_s=16.0
    )
    yield world
    world.close()


@pytest.mark.slow
def test_the_expert_inserts_the_peg_and_its_episode_fits_the_contract(
    world: ThirdPartyEnvironment,
) -> None:
    expert = make_any_expert(TASK)
    first, again = record_episode(world, expert, 0), record_episode(world, expert, 0)
    check_episode(first.arrays, world.contract)
    assert (first.success, first.stage) == (True, 4)
    for key, value in first.arrays.items():
        np.testing.assert_array_equal(value, again.arrays[key], err_msg=key)


@pytest.mark.slow
def test_it_inserts_pieces_from_all_parts_of_the_start_range(world: ThirdPartyEnvironment) -> None:
    results = [record_episode(world, InsertionExpert(), seed) for seed in range(1, 7)]
    assert all(result.success for result in results), [result.error for result in results]
    lengths = {len(result.arrays["action"]) for result in results}
    assert max(lengths) < 400, "within the 8 s of the task"
    assert len(lengths) > 1


@pytest.mark.parametrize("yaw", [0.0, 0.4, np.pi])
def test_a_lost_peg_is_picked_up_again(world: ThirdPartyEnvironment, yaw: float) -> None:
    """Lifted, it is put back onto the table, rotated."""
    expert = InsertionExpert(paces=(1.0, 1.0))
    world.begin(3)
    expert.reset(world, np.random.default_rng(0))
    while world.pose("peg")[2, 3] < 0.2:
        assert not world.advance(expert.act(world)).expired
    turn = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
    world.physics.data.qpos[PEG_QPOS] = (0.15, 0.53, 0.011, *turn)
    world.physics.data.qvel[16:22] = 0.0
    result = world.advance(expert.act(world))
    while not (result.success or result.expired):
        result = world.advance(expert.act(world))
    assert result.success
