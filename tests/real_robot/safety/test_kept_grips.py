"""Grippers keep their goals, and so what they hold, over every beginning of an episode."""

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.filter_rig import LIMITS, PERIOD, chunk, state

from stringline import ALOHA, ArmState, SafetyFilter

Vector = NDArray[np.float64]
GRIPPERS = list(ALOHA.grippers.values())
HINGES = [index for index in range(14) if index not in GRIPPERS]
WIDE = 0.4  # An object keeps the pads that far apart.


def closed() -> Vector:
    goal = ALOHA.home.copy()
    goal[GRIPPERS] = 0.0
    return goal


def blocked(command: Vector) -> Vector:
    """Returns the measured pose: grippers that close on an object, and arms at their commands."""
    measured = command.copy()
    measured[GRIPPERS] = np.maximum(command[GRIPPERS], WIDE)
    return measured


class Holding:
    """A filter whose grippers have closed on objects."""

    def __init__(self) -> None:
        self.filter = SafetyFilter(ALOHA, LIMITS, PERIOD)
        self.filter.start(state(), 0)
        assert self.filter.admit(chunk(count=100), 0, 0.0)
        self.now, self.command = 0.0, ALOHA.home
        for _ in range(90):
            self.step(closed())
        assert self.command[GRIPPERS].tolist() == [0.0, 0.0]

    def measured(self, **changes: object) -> ArmState:
        return state(blocked(self.command), time=self.now, **changes)

    def step(self, target: Vector | None, **changes: object) -> Vector:
        measured = self.measured(**changes)
        self.command = self.filter.step(target, measured, self.now).position
        self.now += PERIOD
        return self.command


def test_every_beginning_keeps_the_goals_of_grippers() -> None:
    """Also without a plan, and after cycles that were withdrawn."""
    run = Holding()
    for session in range(20):
        run.filter.start(run.measured(), session)
        for _ in range(1 + session % 3):
            assert run.step(None)[GRIPPERS].tolist() == [0.0, 0.0]
        run.step(None)
        run.filter.withdraw(2 * PERIOD)


def test_arms_begin_where_they_are_measured() -> None:
    run = Holding()
    away = run.measured()
    away.position[HINGES] += 0.05
    run.filter.start(away, 1)
    np.testing.assert_array_equal(run.filter.position[HINGES], away.position[HINGES])


def test_goals_that_the_driver_reports_count() -> None:
    """As after a reconnection: the filter is new, and the servos still have their goals."""
    fresh = SafetyFilter(ALOHA, LIMITS, PERIOD)
    fresh.start(state(blocked(closed()), gripper_goals=np.array([0.0, 0.1])), 0)
    assert fresh.position[GRIPPERS].tolist() == [0.0, 0.1]
    run = Holding()
    run.filter.start(run.measured(gripper_goals=np.array([WIDE, 0.0])), 1)
    assert run.filter.position[GRIPPERS].tolist() == [WIDE, 0.0]


def test_without_a_command_and_in_another_world_grippers_begin_where_they_are_measured() -> None:
    fresh = SafetyFilter(ALOHA, LIMITS, PERIOD)
    fresh.start(state(blocked(closed())), 0)
    assert fresh.position[GRIPPERS].tolist() == [WIDE, WIDE]
    run = Holding()
    run.filter.start(run.measured(gripper_goals=np.zeros(2)), 1, new_world=True)
    assert run.filter.position[GRIPPERS].tolist() == [WIDE, WIDE]


def test_goals_of_controllers_count_as_before() -> None:
    run = Holding()
    commanded = ALOHA.home + 0.01
    run.filter.start(run.measured(commanded=commanded), 1)
    np.testing.assert_array_equal(run.filter.position, commanded)


@pytest.mark.parametrize("opening", [0.0, 0.25])
def test_a_goal_goes_on_from_where_it_was(opening: float) -> None:
    run = Holding()
    run.filter.start(run.measured(), 1)
    assert run.filter.admit(chunk(start=run.now), 1, run.now)
    target = closed()
    target[GRIPPERS] = opening
    path = np.array([run.step(target)[GRIPPERS[0]] for _ in range(40)])
    assert (np.diff(path, prepend=0.0) >= 0.0).all()
    assert path[-1] == pytest.approx(opening)
