"""The limiter keeps its bounds for any targets, and changes no target within them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stringline.real_robot.safety.limiter import MotionLimiter, stoppable_speed

Vector = NDArray[np.float64]

PERIOD = 0.01
LOWER, UPPER = np.array([-1.0, -0.3]), np.array([1.0, 2.0])
VELOCITY, ACCELERATION = np.array([3.0, 2.0]), np.array([40.0, 7.0])


def limiter(start: Vector) -> MotionLimiter:
    made = MotionLimiter(LOWER, UPPER, VELOCITY, ACCELERATION, PERIOD)
    made.start(start)
    return made


def stopping_distance(speed: Vector, step: Vector, period_s: float) -> Vector:
    """Returns the distance until rest, with that of the coming period: D in closed form."""
    terms = np.ceil(speed / step)
    return np.asarray(period_s * (terms * speed - step * terms * (terms - 1) / 2))


def assert_bounds(positions: list[Vector]) -> None:
    path = np.array(positions)
    assert (path >= LOWER - 1e-9).all()
    assert (path <= UPPER + 1e-9).all()
    assert (np.abs(np.diff(path, axis=0)) <= VELOCITY * PERIOD + 1e-9).all()
    at_rest_before = np.concatenate([path[:1], path])
    assert (np.abs(np.diff(at_rest_before, n=2, axis=0)) <= ACCELERATION * PERIOD**2 + 1e-9).all()


@given(st.floats(1e-6, 5.0), st.floats(0.01, 2.0))
def test_stopping_distance_and_stoppable_speed_are_inverse(speed: float, step: float) -> None:
    distance = stopping_distance(np.array(speed), np.array(step), PERIOD)
    assert np.isclose(stoppable_speed(distance, np.array(step), PERIOD), speed, rtol=1e-9)


@given(st.floats(0.0, 5.0), st.floats(0.01, 2.0))
def test_stopping_distance_is_what_braking_takes(speed: float, step: float) -> None:
    travelled, left = 0.0, speed
    while left > 0:
        travelled, left = travelled + left * PERIOD, left - step
    assert np.isclose(
        stopping_distance(np.array(speed), np.array(step), PERIOD), travelled, atol=1e-12
    )


TARGETS = st.lists(
    st.tuples(st.floats(-1e9, 1e9), st.floats(-3, 3)) | st.none(), min_size=1, max_size=150
)


@settings(max_examples=60, deadline=None)
@given(TARGETS, st.integers(1, 20))
def test_no_targets_lead_out_of_the_bounds(
    targets: list[tuple[float, float] | None], repeat: int
) -> None:
    moved, positions = limiter(np.zeros(2)), [np.zeros(2)]
    for target in targets:
        for _ in range(repeat):
            speed = moved.braking if target is None else moved.propose(np.array(target))
            positions.append(moved.commit(speed))
    assert_bounds(positions)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=5, max_size=60))
def test_growing_limits_keep_the_bounds_too(targets: list[float]) -> None:
    moved, positions = limiter(np.zeros(2)), [np.zeros(2)]
    for step, target in enumerate(targets):
        scale = min(1.0, 0.1 + step / 40)
        positions.append(moved.commit(moved.propose(np.full(2, target), scale), scale))
    assert_bounds(positions)


@settings(max_examples=60, deadline=None)
@given(TARGETS, st.floats(0.001, 0.1))
def test_joints_brake_as_planned_although_the_limits_grow(
    targets: list[tuple[float, float] | None], growth: float
) -> None:
    moved = limiter(np.zeros(2))
    planned = moved.stopping(np.zeros(2))
    for step, target in enumerate(targets):
        scale = min(1.0, 0.1 + growth * step)
        speed = moved.braking
        if target is None:
            assert np.allclose(moved.stopping(speed, scale)[0], planned[0], rtol=0, atol=1e-12)
            assert np.allclose(moved.stopping(speed, scale)[-1], planned[-1], rtol=0, atol=1e-12)
        else:
            speed = moved.propose(np.array(target), scale)
        after = moved.stopping(speed, scale)
        moved.commit(speed, scale)
        planned = after[min(1, len(after) - 1) :]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-3, 3), max_size=30), st.tuples(st.floats(-3, 3), st.floats(-3, 3)))
def test_it_comes_to_rest_at_the_requested_position_or_the_bound_before_it(
    targets: list[float], rest: tuple[float, float]
) -> None:
    moved, positions = limiter(np.zeros(2)), [np.zeros(2)]
    for target in targets:
        positions.append(moved.commit(moved.propose(np.full(2, target))))
    for _ in range(300):
        positions.append(moved.commit(moved.settle(np.array(rest))))
    assert_bounds(positions)
    assert np.allclose(moved.position, np.clip(rest, LOWER, UPPER), rtol=0, atol=1e-9)
    assert np.abs(moved.speed).max() < 1e-9


def test_a_target_within_the_limits_is_followed_without_delay() -> None:
    moved = limiter(np.zeros(2))
    for step in range(300):
        target = np.array([0.5, 0.2]) * (1 - np.cos(0.02 * step))
        assert np.abs(moved.commit(moved.propose(target)) - target).max() < 1e-3


def test_a_waiting_joint_continues_as_if_no_time_had_passed() -> None:
    moved, whole, waits = limiter(np.zeros(2)), limiter(np.zeros(2)), np.array([True, False])
    target, path = np.array([0.7, 1.1]), [np.zeros(2)]
    for step in range(60):
        if step in (5, 6, 20):
            before = moved.position.copy()
            after = moved.commit(moved.propose(target), waits=waits)
            assert after[0] == before[0]
            assert after[1] != before[1]
        path.append(moved.commit(moved.propose(target)))
        assert path[-1][0] == whole.commit(whole.propose(target))[0]


def test_a_step_is_reached_without_overshoot() -> None:
    moved, target = limiter(np.zeros(2)), np.array([0.7, 1.1])
    path = np.array([moved.commit(moved.propose(target)) for _ in range(200)])
    assert (path <= target + 1e-9).all()
    assert np.allclose(path[-1], target)


def test_a_joint_beyond_its_bound_may_only_come_back() -> None:
    moved = limiter(np.array([1.2, 0.0]))
    path = np.array([moved.commit(moved.propose(np.array([5.0, 0.0]))) for _ in range(20)])
    assert (path[:, 0] <= 1.2).all()
    for _ in range(100):
        moved.commit(moved.propose(np.zeros(2)))
    assert abs(moved.position[0]) < 1e-9


@settings(max_examples=60, deadline=None)
@given(TARGETS, st.tuples(st.floats(-1, 1), st.floats(-0.3, 2)))
def test_joints_that_move_together_rest_where_the_first_of_them_stops(
    before: list[tuple[float, float] | None], target: tuple[float, float]
) -> None:
    moved, wanted = limiter(np.zeros(2)), np.array(target)
    for asked in before:
        moved.commit(moved.braking if asked is None else moved.propose(np.array(asked)))
    start, (low, high) = moved.stopping(moved.braking)[-1], moved.rests()
    rest = moved.rest_towards(wanted, np.arange(2))
    assert (low - 1e-9 <= rest).all()
    assert (rest <= high + 1e-9).all()
    way, gone = wanted - start, rest - start
    assert np.isclose(way[0] * gone[1], way[1] * gone[0], atol=1e-9)  # On the straight line,
    assert (way * gone >= -1e-12).all()  # towards the target,
    at_an_end = np.isclose(rest, np.where(way > 0, high, low), atol=1e-9) & (np.abs(way) > 1e-9)
    assert at_an_end.any() or np.allclose(rest, wanted, atol=1e-8)  # as far as possible.
    moved.commit(moved.settle(rest))
    assert np.allclose(moved.stopping(moved.braking)[-1], rest, atol=1e-9)
