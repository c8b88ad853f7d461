"""The interface of all grippers that are not servos of an arm."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class GripperState:
    """The last known state of a gripper.

    Attributes:
        opening: 0 closed to 1 open, linear in the gap between the pads.
        speed: Openings/s; 0 if it is not measured.
        force: N, at least 0; 0 if it is not measured.
        misses: Consecutive states that are overdue or unusable.
        error: Bits of `ArmState.servo_error`; 0: no error.
    """

    opening: float = 1.0
    speed: float = 0.0
    force: float = 0.0
    misses: int = 0
    error: int = 0


class Gripper(Protocol):
    """A gripper beside an arm, used by the arm's driver in the device process.

    The driver calls `connect` once, `read` once in each cycle, and `command` with the opening of
    each command that it sends. So a gripper keeps its last target, and its grip, when its arm is
    stopped or the process has ended. Nothing is sent before the first command, and nothing at all
    to a gripper that is only read.
    """

    @property
    def servo(self) -> str:
        """Name in messages, such as `arm/gripper (CHANNEL)`; empty if it does not measure."""
        ...

    @property
    def state(self) -> GripperState:
        """Its last known state."""
        ...

    @property
    def wanted(self) -> float:
        """Opening that commands continue: that of the last command, or the measured one before."""
        ...

    def connect(self, timeout_s: float) -> list[str]:
        """Opens the connection, waits for the first state, and returns a sentence per problem."""
        ...

    def read(self) -> GripperState:
        """Receives the states that have arrived, without waiting, and returns the last.

        Faults of the gripper never raise: the state reports them.
        """
        ...

    def command(self, opening: float) -> None:
        """Sets the target: NaN is ignored, and other values are clipped to 0..1."""
        ...

    def close(self) -> None:
        """Closes the connection. The gripper keeps its last target."""
        ...


class GripperSettings(Protocol):
    """The settings of a gripper. They are sent to the device process within the driver."""

    def gripper(self, arm: str, *, period_s: float, read_only: bool) -> Gripper:
        """Returns the gripper of an arm, not connected; if `read_only`, nothing is sent to it."""
        ...


class NoGripper:
    """The gripper of an arm without one: the commanded opening counts as measured."""

    servo = ""

    def __init__(self) -> None:
        self.state = GripperState()

    @property
    def wanted(self) -> float:
        """The last command."""
        return self.state.opening

    def connect(self, timeout_s: float) -> list[str]:
        """Returns no problems."""
        return []

    def read(self) -> GripperState:
        """Returns the commanded opening."""
        return self.state

    def command(self, opening: float) -> None:
        """Sets the opening."""
        self.state = GripperState(within(opening, self.state.opening))

    def close(self) -> None:
        """Does nothing."""


def within(opening: float, otherwise: float) -> float:
    """Returns an opening clipped to 0..1, or `otherwise` if it is not finite."""
    return min(max(opening, 0.0), 1.0) if math.isfinite(opening) else otherwise


@dataclass(frozen=True)
class StillGripper:
    """Settings of a gripper that is only read, beside an arm that moves."""

    settings: GripperSettings

    def gripper(self, arm: str, *, period_s: float, read_only: bool) -> Gripper:
        """Returns the gripper of an arm; nothing is sent to it."""
        return self.settings.gripper(arm, period_s=period_s, read_only=True)


def stilled(
    grippers: Mapping[str, GripperSettings], *, still: bool
) -> Mapping[str, GripperSettings]:
    """Returns the settings of grippers by arm, only read if `still`."""
    return {arm: StillGripper(one) for arm, one in grippers.items()} if still else grippers
