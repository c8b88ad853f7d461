"""Gripper conventions are invertible from closed to open, and speeds follow positions."""

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import FINGER_OPEN, GRIPPER_SERVOS, finger_of_opening
from stringline.datasets.formats.conversions import (
    GRIPPER_CONVENTIONS,
    GripperConvention,
    gripper_convention,
)

CONVENTIONS = list(GRIPPER_CONVENTIONS.values())
OPENINGS = np.linspace(
    0, 0.97, 40
)  # Beyond it one servo passes its dead centre, where it has no inverse.


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name)
def test_round_trips(convention: GripperConvention) -> None:
    foreign = convention.from_opening(OPENINGS)
    np.testing.assert_allclose(convention.to_opening(foreign), OPENINGS, atol=1e-9)
    assert len(set(np.sign(np.diff(foreign)))) == 1


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda convention: convention.name)
def test_speeds_follow_positions(convention: GripperConvention) -> None:
    time = np.linspace(0, 1, 2001)
    opening = 0.5 + 0.4 * np.sin(time)
    foreign = convention.from_opening(opening)
    speed, foreign_speed = (
        np.gradient(values, time, edge_order=2) for values in (opening, foreign)
    )
    np.testing.assert_allclose(convention.rate_to_opening(foreign, foreign_speed), speed, rtol=1e-4)
    np.testing.assert_allclose(
        convention.rate_from_opening(opening, speed), foreign_speed, rtol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "closed", "opened"),
    [
        ("opening", 0, 1),
        ("closing", 1, 0),
        ("signed_opening", -1, 1),
        ("signed_closing", 1, -1),
        ("act_finger_m", 0.01844, 0.058),
        ("finger_m", 0.0078, 0.037),
        ("aloha1_follower_rad", -0.6213, 1.4910),
        ("aloha1_leader_rad", -0.6842, 0.3083),
        ("follower_rad", -0.06135, 1.5155),
        ("aloha1_follower_share", 0, 1),
    ],
)
def test_their_ends_are_as_published(name: str, closed: float, opened: float) -> None:
    np.testing.assert_allclose(
        gripper_convention(name, "option").to_opening(np.array([closed, opened])), [0, 1], atol=1e-9
    )


def test_an_angle_is_not_its_opening() -> None:
    half_way = np.array([0.5])
    share = GRIPPER_CONVENTIONS["aloha1_follower_share"].to_opening(half_way)
    servo = GRIPPER_SERVOS["aloha1_follower"]
    np.testing.assert_allclose(share, servo.opening((servo.closed + servo.opened) / 2))
    assert abs(share[0] - 0.5) > 0.02


def test_fingers_agree_with_the_model() -> None:
    np.testing.assert_allclose(
        GRIPPER_CONVENTIONS["finger_m"].from_opening(OPENINGS), finger_of_opening(OPENINGS)
    )
    assert GRIPPER_CONVENTIONS["finger_m"].from_opening(np.ones(1))[0] == pytest.approx(FINGER_OPEN)


def test_ends_can_be_given() -> None:
    convention = gripper_convention({"closed": 0, "opened": 100}, "option")
    np.testing.assert_allclose(convention.to_opening(np.array([0.0, 25.0, 100.0])), [0, 0.25, 1])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            None,
            (
                "option is missing, and the data does not contain it. Allowed: opening "
                "\\(0 "
                "\\(closed\\)"
            ),
        ),
        ("", "option is missing"),
        (
            "open",
            (
                "There is no option 'open'. Allowed: opening .*aloha1_leader_share .*closed: "
                "NUMBER, "
                "opened: NUMBER"
            ),
        ),
        (
            {"closed": 1},
            "option is {'closed': 1}; allowed: a name, or {closed: NUMBER, opened: NUMBER}.",
        ),
        ({"closed": 1, "opened": 1}, "closed=1 and opened=1; they must differ."),
    ],
)
def test_missing_options_are_reported(asked: str | dict[str, float] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gripper_convention(asked, "option")
