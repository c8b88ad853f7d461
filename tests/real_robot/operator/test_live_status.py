"""The counts of the safety filter, with an explanation of targets that were too fast."""

import numpy as np
import pytest

from stringline.real_robot.operator.live_status import FOLLOWS_CLOSELY, LAGS, report_counts
from stringline.real_robot.safety.following_error import NO_FOLLOWING_ERROR, FollowingError
from stringline.real_robot.safety.reasons import Reason


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
