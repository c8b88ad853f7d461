"""What training windows contain, as policies ask for it, and how keyposes and openings are found.

People and experts command openings: an approaching gripper is a little wider than the object, a
closed one a little narrower. The command behind them is found from a whole episode, since a single
opening does not tell: 0.64 closes on an object of 90 mm and is wide open around one of 25 mm.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import (
    NOT_NEGATIVE,
    POSITIVE,
    WHOLE,
    unknown_name,
)
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.loading.workspace_clouds import CloudMaker

STROKE = 0.1
"""Smallest change of an opening that is a motion and no noise."""
REST_S = 0.1
REST = 0.01
"""A gripper rests while its opening falls by less than `REST` in `REST_S` seconds."""

Openings = NDArray[np.float64]


def gripper_places(contract: Contract) -> list[int]:
    """Returns the places of absolute gripper openings in the actions of a contract."""
    return [
        place
        for place, entry in enumerate(contract.action)
        if (entry.kind, entry.mode, entry.unit) == ("gripper", "absolute", "opening")
    ]


def check_openings(contract: Contract, purpose: str, *, otherwise: str) -> list[int]:
    """Returns the places of absolute gripper openings in the actions of a contract.

    Args:
        contract: The contract.
        purpose: What needs openings, as the subject of the message.
        otherwise: The option that works without openings.

    Raises:
        ValueError: The actions lack an absolute opening.
    """
    places = gripper_places(contract)
    if not places:
        got = ", ".join(f"{one.name} ({one.mode}, {one.unit})" for one in contract.action)
        raise ValueError(
            f"{purpose} need an absolute opening in the actions of {contract.embodiment!r}; got "
            f"{got}; allowed: grippers with kind gripper, mode absolute and unit opening, or "
            f"{otherwise}."
        )
    return places


def with_commands(action: Array, contract: Contract) -> Array:
    """Returns the actions (T, A) of an episode with commands, 0 or 1, for their openings."""
    result = np.array(action)
    for place in gripper_places(contract):
        result[:, place] = is_open(result[:, place].astype(np.float64), contract.control_hz)
    return result


def is_open(opening: Openings, control_hz: float) -> NDArray[np.bool_]:
    """Returns whether a gripper is commanded to open or to close, for each step of an episode.

    Strokes are falls and rises by at least `STROKE` between turning points. The gripper closes from
    the last rest within a fall: a fall with a rest first makes the gripper narrower for an object.
    It opens from the beginning of a rise. Before the first stroke the command is the opposite of
    the first one; without any stroke a gripper is open at an opening of 0.5 and above.

    Args:
        opening: Commanded openings (T,).
        control_hz: Actions per second.
    """
    turns = turning_points(opening)
    if len(turns) < 2:
        return np.full(len(opening), bool(len(opening)) and opening[0] >= 0.5)
    result = np.full(len(opening), opening[turns[0]] > opening[turns[1]])
    for first, last in pairwise(turns):
        if opening[last] > opening[first]:
            result[_rise(opening, first, last) :] = True
        else:
            result[_fall(opening, first, last, max(1, round(REST_S * control_hz))) :] = False
    return result


def turning_points(opening: Openings, stroke: float = STROKE) -> list[int]:
    """Returns the steps at which openings (T,) turn, with hysteresis.

    Between two of them the opening changes by at least `stroke`. First and last are the highest and
    lowest openings before the first and after the last change. Without such a change there is none.
    """
    found: list[int] = []
    extreme = {1: 0, -1: 0}  # Steps of the highest and the lowest opening since the last turn.
    direction = 0
    for step, value in enumerate(opening):
        for sign in (1, -1):
            if sign * (value - opening[extreme[sign]]) > 0:
                extreme[sign] = step
        for sign in (1, -1):
            turned = sign * (value - opening[extreme[-sign]]) >= stroke
            if direction != sign and turned:
                found.append(extreme[-sign])
                direction = sign
                extreme[sign] = step
    return [*found, extreme[direction]] if found else []


def _rise(opening: Openings, first: int, last: int) -> int:
    """Returns the step at which a rise begins."""
    near = opening[first : last + 1] <= opening[first] + STROKE / 2
    return first + int(np.flatnonzero(near)[-1]) + 1


def _fall(opening: Openings, first: int, last: int, rest: int) -> int:
    """Returns the step at which the part of a fall after its last rest, of `rest` steps, begins."""
    arrived = first + int(np.argmax(opening[first : last + 1] <= opening[last] + STROKE / 2))
    steps = np.arange(first, arrived)
    rests = opening[np.maximum(steps - rest, first)] - opening[steps] < REST
    return int(steps[rests][-1]) + 1


Stops = Literal["auto", "always", "never"]
CLOUDS_HZ = 6.25
"""Largest number of windows with point clouds per second; neighbouring clouds are alike."""


@dataclass(frozen=True, kw_only=True)
class KeyposeSettings:
    """How keyposes are found.

    Attributes:
        stroke: Smallest change of an opening that is an event, from 0 (closed) to 1 (open).
        rest_m: An arm stands still while its gripper stays within this distance, m ...
        rest_s: ... for this time, s.
        smooth_s: Positions are averaged over this time before, s: hands tremble.
        together_s: Events of two arms within this time are one event, s.
        travel_m: Least distance between two stops, m. Events of a gripper within it count by what
            they change together: a second grasp in place is one closing, and a gripper that closes
            and opens in place has done nothing.
        stops: Whether arms at rest make keyposes as well: always, never, or auto: in recordings
            without gripper events, and at the end of one for arms that hold something.
        straight_m: Largest length of the straight parts before and after an event, m.
        least_m: Distance of the approach pose if there is no straight part, m.
        depart_m: Least distance of the departure pose, m.
    """

    stroke: float = STROKE
    rest_m: float = 0.008
    rest_s: float = 0.24
    smooth_s: float = 0.1
    together_s: float = 0.3
    travel_m: float = 0.025
    stops: Stops = "auto"
    straight_m: float = 0.16
    least_m: float = 0.03
    depart_m: float = 0.075

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: A value is out of range.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "stops":
                if value not in get_args(Stops):
                    raise unknown_name("choice of stops", str(value), get_args(Stops))
            elif field.name == "smooth_s":
                NOT_NEGATIVE.check(smooth_s=value)
            else:
                POSITIVE.check(**{field.name: value})


@dataclass(frozen=True, kw_only=True)
class WindowSettings:
    """What training windows contain, and at which steps they begin.

    Attributes:
        chunk: Number of actions in a window, at least 1.
        cameras: Names of the cameras, in a mixture of the slots. If None, all.
        every_step: Whether a window begins at every step, even without a new image.
        past: Offsets of further observations before a window in steps, such as (20, 10); the
            largest is first.
        past_images: Whether the further observations contain images and geometry.
        gripper_commands: Whether openings in actions are replaced by the commands that they follow,
            0 (close) and 1 (open), for policies with open and close commands.
        segments: Whether windows contain the segments of the images, of each camera for which every
            episode has them.
        pad_last_action_steps: Number of actions after the end of an episode that repeat the last
            one and belong to the window: the robot holds its last target.
        events: How keyposes are found. If None, windows contain no keyposes.
        labels: Whether windows at steps with labels of an expert have these as targets in place of
            what has been executed, see `corrections.py`.
        clouds: Makes the point clouds that windows contain instead of images. If None, windows
            contain images.
        clouds_hz: Largest number of windows per second of a recording, if they contain clouds.

    Raises:
        ValueError: A number is out of range.
    """

    chunk: int = 48
    cameras: Sequence[str] | None = None
    every_step: bool = False
    past: Sequence[int] = ()
    past_images: bool = True
    gripper_commands: bool = False
    segments: bool = False
    pad_last_action_steps: int = 0
    events: KeyposeSettings | None = None
    labels: bool = False
    clouds: CloudMaker | None = None
    clouds_hz: float = CLOUDS_HZ

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise ValueError(f"chunk must be an integer of at least 1 (got {self.chunk}).")
        WHOLE.check(pad_last_action_steps=self.pad_last_action_steps)
        POSITIVE.check(clouds_hz=self.clouds_hz)
        past = tuple(self.past)
        if any(offset < 1 for offset in past) or len(set(past)) < len(past):
            raise ValueError(f"past is {past}; allowed: different offsets, each 1 or above.")
        object.__setattr__(self, "past", tuple(sorted(past, reverse=True)))
