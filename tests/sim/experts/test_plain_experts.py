"""Plain experts act in one way in every episode; varied experts do not."""

import numpy as np
import pytest

from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.collection.demonstration import record_episode
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.experts.skills import PlainDraws
from stringline.sim.tasks.task_registry import TASKS

STEPS = 160  # Long enough for each task to reach the first choice that varies.
FASTEST = 0.07  # Rad or openings per period: above the experts' own limits, below a jump.
# Its motions are drawn, in narrow ranges.
DRAWN = ("hand_over_banana",)


def targets(env: TaskEnvironment, seed: int, *, varied: bool) -> list[Vector]:
    """Returns the first targets of an episode that always begins alike."""
    env.begin(3, {"start_spread": 1.0})
    expert = make_expert(env.task.name, varied=varied)
    expert.reset(env, np.random.default_rng(seed))
    found = []
    for _ in range(STEPS):
        found.append(expert.act(env))
        env.advance(found[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TASKS if name not in DRAWN])
def test_a_plain_expert_acts_in_one_way(name: str) -> None:
    env = make_environment(name, cameras=())
    once, again = (targets(env, seed, varied=False) for seed in (1, 2))
    drawn = targets(env, 1, varied=True)
    env.close()
    assert np.array_equal(once, again)
    assert not np.allclose(once, drawn, atol=0.01)
    assert np.abs(np.diff(once, axis=0)).max() < FASTEST


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [("hand_over_banana", 1), ("hand_over_pen", 2)])
def test_a_plain_hand_over_succeeds_from_a_start_with_less_in_reach(name: str, seed: int) -> None:
    """Without going home first, the banana is out of reach, and the pen stays in the gripper."""
    world = make_environment(name, cameras=(), time_limit_s=40.0)
    expert = make_expert(name, varied=False)
    options = {"start_spread": 1.0, "strict": True}
    recording = record_episode(world, expert, seed, options=options)
    world.close()
    assert recording.success, recording.error


def test_plain_draws_leave_the_middle_of_a_range_with_each_attempt() -> None:
    def draws(attempt: int) -> Vector:
        return np.asarray(PlainDraws(attempt).uniform((0.0, -3.0), (2.0, 5.0), (500, 2)))

    assert np.array_equal(draws(3), draws(3))
    assert np.array_equal(draws(0), np.tile([1.0, 1.0], (500, 1)))
    spread = [float(np.ptp(draws(attempt)[:, 1])) for attempt in range(6)]
    assert spread[:5] == sorted(spread[:5])
    assert spread[4] == pytest.approx(8.0, abs=0.1)
    assert (draws(9) >= (0.0, -3.0)).all()
    assert (draws(9) <= (2.0, 5.0)).all()
