"""A frozen owner, alone or with all other processes: a hold in time, and a soft start after it."""

from pathlib import Path

import pytest
from tests.real_robot.moving_arms import ROBOTS
from tests.real_robot.owned_arms import first, moved_by, owned_arms

from stringline.real_robot.safety.reasons import Mode, Reason

SHOWN_S = 0.2
GAPS = pytest.mark.parametrize(
    ("robot", "gap_s"),
    [
        *((robot, 0.3) for robot in ROBOTS),
        *(
            pytest.param(robot, gap_s, marks=pytest.mark.stress)
            for robot in ROBOTS
            for gap_s in (0.03, 0.1, 3.0)
        ),
    ],
)


@pytest.mark.slow
@GAPS
def test_a_frozen_owner_is_a_hold_until_it_continues(
    robot: str, gap_s: float, tmp_path: Path
) -> None:
    check_hold(robot, "owner", gap_s, tmp_path)


@pytest.mark.slow
def test_ctrl_z_freezes_the_owner_alone(tmp_path: Path) -> None:
    """The terminal sends SIGTSTP to all processes of the group."""
    check_hold("aloha", "Ctrl-Z", 0.3, tmp_path)


def check_hold(robot: str, who: str, gap_s: float, tmp_path: Path) -> None:
    with owned_arms(robot, tmp_path) as arms:
        begin, end = arms.freeze(who, gap_s)
        states = arms.end()
        arms.check()
    assert moved_by(states, begin) > 0.02
    held = first(states, begin, Mode.HOLD)
    if gap_s > SHOWN_S:
        assert held - begin <= SHOWN_S
        during = [state.reasons for now, state in states if begin + SHOWN_S < now < end]
        assert during
        assert [reasons for reasons in during if not reasons & Reason.SUPERVISOR] == []
    assert first(states, end, Mode.RUN) - end < 1.0


@pytest.mark.slow
@GAPS
def test_frozen_processes_are_shown_at_once_when_they_continue(
    robot: str, gap_s: float, tmp_path: Path
) -> None:
    with owned_arms(robot, tmp_path) as arms:
        begin, end = arms.freeze("all", gap_s)
        states = arms.end()
        arms.check()
    assert moved_by(states, begin) > 0.02
    shown = next(
        (now, state) for now, state in states if now > begin and state.mode is not Mode.RUN
    )
    assert shown[0] - end <= SHOWN_S
    assert shown[1].reasons & Reason.GAP
