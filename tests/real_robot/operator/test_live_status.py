"""The status line, and the counts of the safety filter with an explanation of fast targets."""

import io
import sys

import numpy as np
import pytest

from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.operator.live_status import (
    FOLLOWS_CLOSELY,
    LAGS,
    LiveStatus,
    report_counts,
    report_fault,
)
from stringline.real_robot.safety.reasons import NO_FOLLOWING_ERROR, FollowingError, Mode, Reason


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def state(mode: Mode, reasons: Reason) -> DeviceState:
    none = np.zeros(0)
    arms = ArmState(
        time=0.0,
        position=none,
        velocity=none,
        effort=none,
        servo_error=np.zeros(0, np.uint8),
        servo_misses=np.zeros(0, np.int32),
        lost=np.zeros(0, np.bool_),
    )
    return DeviceState(0, 0, 0, mode, reasons, Reason(0), {}, arms, none, np.zeros(0, np.int64))


def test_the_status_line_of_a_terminal_has_the_colour_of_the_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = {}
    for terminal in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", terminal)
        with LiveStatus(1.0) as status:
            for place, mode in enumerate((Mode.RUN, Mode.HOLD, Mode.FAULT)):
                before = len(terminal.getvalue())
                status.show(state(mode, Reason.STARVED), 0.3 * (place + 1))
                shown[terminal.isatty(), mode] = terminal.getvalue()[before:]
    for mode, colour in ((Mode.RUN, "\x1b[32m"), (Mode.HOLD, "\x1b[33m"), (Mode.FAULT, "\x1b[31m")):
        assert f"{mode.name} STARVED" in shown[True, mode]
        assert colour in shown[True, mode]
        assert "\x1b[3" not in shown[False, mode]


def test_a_fault_rings_the_bell_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", terminal)
        report_fault([])
        assert terminal.getvalue() == ""
        report_fault(["The port of an arm is lost."])
        assert terminal.getvalue().startswith("\aFAULT" if terminal.isatty() else "FAULT")


@pytest.mark.parametrize(
    ("mean_deg", "explained"), [(1.4, FOLLOWS_CLOSELY), (2.9, FOLLOWS_CLOSELY), (3.1, LAGS)]
)
def test_the_report_says_how_far_the_arms_were_behind_and_whether_this_is_usual(
    mean_deg: float, explained: str, capsys: pytest.CaptureFixture[str]
) -> None:
    halves = FollowingError(np.radians(mean_deg) * 381, np.radians(14.5))
    following = halves + FollowingError(np.radians(mean_deg) * 381, np.radians(9.0))
    report_counts({Reason.MOTION: 762, Reason.TABLE: 43, Reason.HOT: 0}, 840, following)
    assert capsys.readouterr().out.splitlines() == [
        "The safety filter acted in these of 840 cycles:",
        "     762  a target was too fast and is followed within the limits of velocity and "
        "acceleration",
        "      43  a target would move an arm into the table",
        f"In the cycles with targets that were too fast, the commands were {mean_deg} degrees "
        f"behind on average, 14.5 at most. {explained}",
    ]


def test_without_fast_targets_there_is_no_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    report_counts({Reason.TABLE: 1}, 10, NO_FOLLOWING_ERROR)
    report_counts({}, 10, NO_FOLLOWING_ERROR)
    assert capsys.readouterr().out.splitlines() == [
        "The safety filter acted in these of 10 cycles:",
        "       1  a target would move an arm into the table",
        "The safety filter passed all 10 cycles.",
    ]
