"""What training windows contain, as policies ask for it, and how keyposes are found."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

from stringline.datasets.contract.argument_checks import (
    NOT_NEGATIVE,
    POSITIVE,
    WHOLE,
    unknown_name,
)
from stringline.datasets.loading.gripper_commands import STROKE
from stringline.datasets.loading.workspace_clouds import CloudMaker

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
        stops: Whether arms at rest make keyposes as well: `auto`: in recordings without gripper
            events, and at the end of one for arms that hold something.
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
