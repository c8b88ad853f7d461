"""A fixed rate in real time, and slow motion on a machine that is too slow."""

import pytest

from stringline.sim.teleop.teleop_session import LEAST_REST_S, MOST_BEHIND_S, Rate


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_work_is_part_of_the_period() -> None:
    clock = Clock()
    rate = Rate(50.0, clock, clock.sleep)
    for work in (0.0, 0.015, 0.004):
        clock.now += work
        rate.wait()
    assert clock.now == pytest.approx(0.06)
    for _ in range(300):
        clock.now += 0.01
        rate.wait()
    assert clock.now == pytest.approx(6.06)
    assert rate.speed == pytest.approx(1.0)


def test_a_short_delay_is_made_up_for_and_a_long_one_is_not() -> None:
    clock = Clock()
    rate = Rate(50.0, clock, clock.sleep)
    clock.now += 0.05
    for _ in range(4):
        rate.wait()
    assert clock.now == pytest.approx(0.08)
    clock.now += 10.0
    begin = clock.now
    for _ in range(20):
        rate.wait()
    assert clock.now - begin >= 19 * 0.02 - MOST_BEHIND_S


def test_the_speed_of_a_slow_machine_is_shown() -> None:
    clock = Clock()
    rate = Rate(50.0, clock, clock.sleep)
    for _ in range(500):
        clock.now += 0.039
        rate.wait()
    assert clock.now == pytest.approx(500 * (0.039 + LEAST_REST_S))
    assert rate.speed == pytest.approx(0.5, abs=0.01)
