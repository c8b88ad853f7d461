"""Frozen processes by the clock: after each gap the arms start again from rest."""

from pathlib import Path

import pytest
from tests.real_robot.moving_arms import ROBOTS, moving_arms

from stringline.real_robot.safety.reasons import Mode, Reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "gap_s", "far_end"),
    [
        *((robot, 0.1, False) for robot in ROBOTS),
        ("lcm", 0.03, False),
        ("lcm", 3.0, False),
        *(
            pytest.param(robot, gap_s, whole, marks=pytest.mark.stress)
            for robot in ROBOTS
            for gap_s in (0.03, 0.1, 0.3, 3.0)
            for whole in (False, True)
        ),
    ],
)
def test_a_gap_is_shown_and_the_arms_start_again_from_rest(
    robot: str, gap_s: float, far_end: bool, tmp_path: Path
) -> None:
    with moving_arms(robot, tmp_path) as arms:
        after = arms.freeze(gap_s, far_end=far_end)
    first = after[0]
    assert first.mode is not Mode.RUN
    assert first.reasons & Reason.GAP
    if gap_s > 1.0:
        assert first.mode is Mode.FAULT
        assert first.fault_reasons & Reason.GAP
    assert arms.violations() == 0
    assert all(line.check.goals > 20 for line in arms.lines.values())
