"""Two arms follow their own scripts at the same time, and share the middle of the table."""

from collections.abc import Iterator

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.gathering_experts import Member, Teamwork, together
from stringline.sim.experts.motion import Motion
from stringline.sim.experts.skills import Scene, Skills
from stringline.sim.tasks.hand_over_tasks import HandOverBanana


def counting(first: int, count: int) -> Iterator[Vector]:
    for number in range(first, first + count):
        yield np.full(14, float(number))


def test_each_arm_follows_its_own_script_and_then_stays() -> None:
    start = np.full(14, -1.0)
    targets = np.stack(
        list(together(ALOHA, start, {"left": counting(0, 2), "right": counting(10, 4)}))
    )
    np.testing.assert_array_equal(
        targets[:, :7], np.repeat([[0.0], [1.0], [1.0], [1.0]], 7, axis=1)
    )
    np.testing.assert_array_equal(
        targets[:, 7:], np.repeat([[10.0], [11.0], [12.0], [13.0]], 7, axis=1)
    )
    alone = np.stack(list(together(ALOHA, start, {"right": counting(0, 1)})))
    np.testing.assert_array_equal(alone, [[-1.0] * 7 + [0.0] * 7])
    np.testing.assert_array_equal(start, np.full(14, -1.0))
    assert list(together(ALOHA, start, {})) == []


def test_one_arm_waits_while_the_other_is_in_the_middle() -> None:
    task = HandOverBanana()
    world = TaskEnvironment(task, cameras=())
    world.begin(0)
    kinematics, team = InverseKinematics(ALOHA), Teamwork()
    left, right = (
        Member(
            arm,
            Skills(
                Scene(world, task),
                Motion(ALOHA, kinematics, 50.0),
                kinematics,
                np.random.default_rng(0),
            ),
            team,
        )
        for arm in ("left", "right")
    )
    assert list(left.enter_middle()) == []
    assert list(left.enter_middle()) == []  # The left arm has the middle already.
    team.taken["left"], team.reserved["left"] = "apple", np.zeros(2)
    waiting = right.enter_middle()
    for _ in range(7):
        np.testing.assert_array_equal(next(waiting), ALOHA.home)
    assert len(right.avoided) == 1
    assert left.avoided == []
    team.leave("right")  # It does not have the middle, so nothing changes.
    assert team.middle == "left"
    team.leave("left")
    assert (team.middle, team.taken, team.reserved) == (None, {}, {})
    assert len(list(waiting)) < 5
    assert team.middle == "right"
    world.close()


def test_arms_turn_to_joints_within_the_limits_of_speed_and_acceleration() -> None:
    motion = Motion(ALOHA, InverseKinematics(ALOHA), 50.0)
    goal = ALOHA.home + np.linspace(-1.5, 1.5, 14)
    targets = np.stack([ALOHA.home, *motion.turn(0.1, {"left": goal})])
    left, right = ALOHA.revolute_joints["left"], ALOHA.revolute_joints["right"]
    np.testing.assert_allclose(targets[-1, left], goal[left], atol=1e-12)
    np.testing.assert_array_equal(targets[:, right], np.tile(ALOHA.home[right], (len(targets), 1)))
    speed = np.diff(targets, axis=0) * 50
    assert 2.0 < np.abs(speed).max() < 2.81
    assert np.abs(np.diff(speed, axis=0) * 50).max() < 7.1
    assert len(list(motion.turn(0.5, {"left": goal}))) == 25  # The arm is there already.
