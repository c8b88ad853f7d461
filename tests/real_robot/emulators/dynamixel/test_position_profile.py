"""The trajectory of a servo: trapezoids that keep their speed, acceleration and duration."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stringline.real_robot.emulators.dynamixel.dynamixel_servo import PositionProfile

PERIOD_S = 0.01
SPEED = 0.229 / 60 * 4096  # Ticks/s of one unit.
CHANGE = 214.577 / 3600 * 4096  # Ticks/s^2 of one unit.


def duration(profile: PositionProfile, goal: int, period_s: float = PERIOD_S) -> float:
    """Advances to the goal and returns the seconds."""
    for step in range(1, 20_000):
        profile.advance(period_s)
        if profile.position == goal and profile.velocity == 0.0:
            return step * period_s
    raise AssertionError(f"{profile.position} is not {goal}.")


@pytest.mark.parametrize("goal", [3000, -3000])
def test_the_duration_is_that_of_a_trapezoid_a_rectangle_or_a_triangle(goal: int) -> None:
    for velocity, acceleration in ((100, 20), (100, 0), (1000, 5)):
        most, change = velocity * SPEED, acceleration * CHANGE
        profile = PositionProfile()
        profile.aim(goal, velocity, acceleration, timed=False)
        expected = abs(goal) / most + (most / change if change else 0.0)
        if change and most**2 / change > abs(goal):  # It never reaches the speed.
            expected = 2 * math.sqrt(abs(goal) / change)
        assert duration(profile, goal) == pytest.approx(expected, abs=2 * PERIOD_S)


@pytest.mark.parametrize("ramp_ms", [0, 200, 500, 900])
def test_a_time_based_profile_takes_its_time(ramp_ms: int) -> None:
    """A ramp longer than one half of the time counts as one half."""
    profile = PositionProfile(500.0)
    profile.aim(1700, 1000, ramp_ms, timed=True)
    assert duration(profile, 1700) == pytest.approx(1.0, abs=2 * PERIOD_S)


def test_without_a_velocity_the_goal_is_the_target_at_once() -> None:
    for timed in (False, True):
        profile = PositionProfile()
        profile.aim(700, 0, 50, timed=timed)
        assert not profile.used
        assert (profile.position, profile.velocity) == (700, 0.0)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(-4000, 4000), st.integers(1, 60)), min_size=1, max_size=6),
    st.integers(20, 300),
    st.integers(5, 300),
    st.sampled_from([0.002, 0.01, 0.02]),
)
def test_goals_during_a_motion_keep_speed_and_acceleration_within_the_profile(
    goals: list[tuple[int, int]], velocity: int, acceleration: int, period_s: float
) -> None:
    profile = PositionProfile()
    change = acceleration * CHANGE * period_s
    for goal, steps in goals:
        profile.aim(goal, velocity, acceleration, timed=False)
        for _ in range(steps):
            position, speed = profile.position, profile.velocity
            profile.advance(period_s)
            assert abs(profile.velocity) <= velocity * SPEED + 1e-6
            assert abs(profile.velocity - speed) <= change + 1e-6
            moved = (profile.position - position) / period_s
            assert abs(moved - speed) <= change + 1e-6
    profile.advance(period_s)
    duration(profile, goals[-1][0], period_s)
