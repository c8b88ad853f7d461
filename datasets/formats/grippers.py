"""Foreign conventions for the opening of a gripper, and conversions to ours.

Our opening is 0 (closed) to 1 (open), linear in the gap of the pads. For ALOHA alone four
conventions are in use, two of them within one file (`observations/qpos` by the distance of the
fingers, `action` by the angle of the leader's servo). No file contains its convention, so users
must name it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.aloha import (
    FINGER_CLOSED,
    FINGER_OPEN,
    GRIPPER_SERVOS,
    GripperServo,
)
from stringline.datasets.embodiments.gym_aloha import normalised_of_opening

# Openings outside of these limits are not overshoot; the convention must be another one.
LOWEST = -0.5
HIGHEST = 1.5


@dataclass(frozen=True)
class GripperConvention:
    """A convention for the opening of a gripper; the conversions take and return arrays (...)."""

    name: str
    meaning: str
    to_opening: Callable[[Array], Array]
    from_opening: Callable[[Array], Array]

    def rate_to_opening(self, values: Array, rates: Array) -> Array:
        """Returns speeds (...) in openings/s from foreign values (...) and their speeds."""
        return _rate(self.to_opening, values, rates)

    def rate_from_opening(self, openings: Array, rates: Array) -> Array:
        """Returns foreign speeds (...) from openings (...) and their speeds."""
        return _rate(self.from_opening, openings, rates)


def _rate(convert: Callable[[Array], Array], values: Array, rates: Array) -> Array:
    """Returns the rates (...) of converted values by central differences over 0.1 ms."""
    step = 1e-4
    return np.asarray(
        (convert(values + step * rates) - convert(values - step * rates)) / (2 * step)
    )


def linear(name: str, meaning: str, closed: float, opened: float) -> GripperConvention:
    """Returns a convention that is linear in the gap, with foreign values at openings 0 and 1."""
    if closed == opened:
        raise ValueError(
            f"A gripper convention has closed={closed} and opened={opened}; they must differ."
        )
    span = opened - closed
    return GripperConvention(
        name,
        meaning,
        lambda values: (values - closed) / span,
        lambda opening: np.asarray(closed + span * opening),
    )


def _angle(name: str, servo: GripperServo) -> GripperConvention:
    return GripperConvention(
        f"{name}_rad", f"angle of the servo {name} in rad", servo.opening, servo.angle
    )


def _share(name: str, servo: GripperServo) -> GripperConvention:
    travel = servo.opened - servo.closed
    return GripperConvention(
        f"{name}_share",
        f"0 (closed) to 1 (open), linear in the angle of the servo {name}",
        lambda values: servo.opening(servo.closed + travel * values),
        lambda opening: (servo.angle(opening) - servo.closed) / travel,
    )


GRIPPER_CONVENTIONS: dict[str, GripperConvention] = {
    convention.name: convention
    for convention in (
        linear(
            "opening",
            "0 (closed) to 1 (open), linear in the gap: ACT in simulation, states of real ALOHA",
            0.0,
            1.0,
        ),
        linear("closing", "0 (open) to 1 (closed), linear in the gap", 1.0, 0.0),
        linear("signed_opening", "-1 (closed) to 1 (open), linear in the gap", -1.0, 1.0),
        linear(
            "signed_closing",
            "-1 (open) to 1 (closed), linear in the gap: actions of robosuite",
            1.0,
            -1.0,
        ),
        linear("finger_m", "travel of one finger of ALOHA 2 in m", FINGER_CLOSED, FINGER_OPEN),
        linear("act_finger_m", "travel of one finger of ALOHA 1 in m, in ACT", 0.01844, 0.05800),
        linear(
            "gym_aloha",
            "0 to 1 as gym-aloha counts, about 0.10 (closed) to 0.97 (open)",
            *normalised_of_opening((0.0, 1.0)).tolist(),
        ),
        linear("finger_control_m", "control signal of one finger of ALOHA 2 in m", 0.002, 0.037),
        *(_angle(name, servo) for name, servo in GRIPPER_SERVOS.items()),
        *(_share(name, servo) for name, servo in GRIPPER_SERVOS.items()),
    )
}


def gripper_convention(chosen: str | Mapping[str, float] | None, option: str) -> GripperConvention:
    """Returns the convention that a user chose: one of `GRIPPER_CONVENTIONS`, or a linear one.

    A linear one is given by its foreign values `closed` and `opened`. Messages contain `option`.
    """
    if isinstance(chosen, Mapping):
        if set(chosen) != {"closed", "opened"}:
            raise ValueError(
                f"{option} is {dict(chosen)}; allowed: a name, or "
                "{closed: NUMBER, opened: NUMBER}."
            )
        name = f"{chosen['closed']:g}..{chosen['opened']:g}"
        return linear(name, "given by its ends", chosen["closed"], chosen["opened"])
    if chosen in GRIPPER_CONVENTIONS:
        return GRIPPER_CONVENTIONS[chosen]
    meanings = "; ".join(
        f"{name} ({convention.meaning})" for name, convention in GRIPPER_CONVENTIONS.items()
    )
    allowed = (
        f"Allowed: {meanings}; or the ends of a linear one, {{closed: NUMBER, opened: NUMBER}}."
    )
    if not chosen:
        raise ValueError(f"{option} is missing, and the data does not contain it. {allowed}")
    raise ValueError(f"There is no {option} {chosen!r}. {allowed}")
