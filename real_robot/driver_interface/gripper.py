"""The face of every gripper beside an arm: what it is told, what it tells, and what becomes of it when things go wrong."""

import math
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class GripperState:
    """What a gripper was last known to do.

    Attributes:
        opening: 0 closed to 1 open, linear in the gap between the pads.
        speed: Openings/s; 0 where nobody measures it.
        force: N, at least 0; 0 where nobody measures it.
        misses: How many times in a row it should have told something usable by now and did not.
        error: What is wrong with it, as in `ArmState.servo_error`; 0: nothing.
    """

    opening: float = 1.0
    speed: float = 0.0
    force: float = 0.0
    misses: int = 0
    error: int = 0


class Gripper(Protocol):
    """A gripper beside an arm, used by the arm's driver in the device process.

    The driver calls `connect` once, `read` once in each cycle, and `command` with the opening of
    each command that it sends. So a gripper whose arm is stopped, and one of a process that is
    gone, keeps its last target and goes on holding what it holds. Nothing leaves before the first
    command; nothing ever leaves if it is only read.
    """

    @property
    def servo(self) -> str:
        """How messages name what measures it, such as `arm/gripper (SCHUNK_WSG_STATUS)`; empty if nothing does."""
        ...

    @property
    def state(self) -> GripperState:
        """What it was last known to do."""
        ...

    @property
    def wanted(self) -> float:
        """The opening that commands go on from: the last command, and before the first where it stands."""
        ...

    def connect(self, timeout_s: float) -> list[str]:
        """Opens what it needs and waits until the gripper has spoken.

        Args:
            timeout_s: Longest wait.

        Returns:
            One sentence for each thing that is wrong.
        """
        ...

    def read(self) -> GripperState:
        """Takes what has come in, without waiting.

        Never raises for what the gripper does: the state says what is missing.
        """
        ...

    def command(self, opening: float) -> None:
        """Takes an opening; what is no number is left out, and what is beyond the range is brought to its end."""
        ...

    def close(self) -> None:
        """Closes what `connect` has opened. The gripper keeps its last target."""
        ...


class GripperSettings(Protocol):
    """What a configuration says of a gripper.

    It crosses into the device process within the driver.
    """

    def gripper(self, arm: str, *, period_s: float, read_only: bool) -> Gripper:
        """Returns the gripper of an arm, not connected.

        Args:
            arm: Its name.
            period_s: Between two reads.
            read_only: Whether nothing may leave.
        """
        ...


class NoGripper:
    """Stands for the gripper of an arm that has none: what was commanded counts as measured."""

    servo = ""

    def __init__(self) -> None:
        self.state = GripperState()

    @property
    def wanted(self) -> float:
        """The last command."""
        return self.state.opening

    def connect(self, timeout_s: float) -> list[str]:
        """Finds nothing wrong."""
        return []

    def read(self) -> GripperState:
        """Returns what was commanded."""
        return self.state

    def command(self, opening: float) -> None:
        """Counts as measured."""
        self.state = GripperState(within(opening, self.state.opening))

    def close(self) -> None:
        """Holds nothing."""


def within(opening: float, otherwise: float) -> float:
    """Returns an opening between 0 and 1, or the other one where it is no number."""
    return min(max(opening, 0.0), 1.0) if math.isfinite(opening) else otherwise
