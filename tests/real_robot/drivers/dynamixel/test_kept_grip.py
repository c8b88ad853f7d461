"""A gripper with torque keeps its goal when a driver is armed again; one without it does not."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.real_robot.served_arms import Served

from stringline.datasets.embodiments.aloha import FOLLOWER
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX

GRIPPER = VIPERX[-1].ident
CLOSED = table.ticks_of_angle(FOLLOWER.closed)


@pytest.fixture
def served() -> Iterator[Served]:
    with closing(Served()) as lines:
        yield lines


@pytest.mark.parametrize("torque", [True, False])
def test_a_gripper_keeps_what_it_holds_over_a_reconnection(served: Served, *, torque: bool) -> None:
    """The object keeps the pads wider than the goal of the servo."""
    servo = served.lines["left"].servos[GRIPPER]
    held = table.ticks_of_angle(float(FOLLOWER.angle(0.4)))
    servo.set(table.PRESENT_POSITION, held)
    servo.set(table.GOAL_POSITION, CLOSED)
    servo.set(table.TORQUE_ENABLE, torque)
    with closing(served.driver()) as driver:
        driver.connect()
        driver.arm()
        state = driver.read(lambda: 0.0)
    assert servo.get(table.GOAL_POSITION) == (CLOSED if torque else held)
    assert state.gripper_goals[0] == pytest.approx(0.0 if torque else 0.4, abs=2e-3)
    assert state.position[6] == pytest.approx(0.4, abs=2e-3)


def test_other_joints_begin_where_they_are_also_with_torque(served: Served) -> None:
    servo = served.lines["left"].servos[VIPERX[0].ident]
    servo.set(table.TORQUE_ENABLE, 1)
    with closing(served.driver()) as driver:
        driver.connect()
        driver.arm()
    assert servo.get(table.GOAL_POSITION) == servo.get(table.PRESENT_POSITION)


def test_a_driver_without_torque_tells_no_goals(served: Served) -> None:
    with closing(served.driver()) as driver:
        driver.connect()
        assert len(driver.read(lambda: 0.0).gripper_goals) == 0
