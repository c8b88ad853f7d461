"""LBR arms without their protocol: links, controllers, arms and grippers, and their state.

An arm knows the position at which its commands continue, and its interlocks.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.driver_interface.driver import ArmState, BusListener
from stringline.real_robot.driver_interface.gripper import Gripper
from stringline.real_robot.driver_interface.interlocks import Interlock

JOINTS = 7
# No axis of an LBR is faster than 180 degrees/s.
_FASTEST_RAD_S = np.pi
_ROUNDING_RAD = 1e-9


class KukaArm(ABC):
    """One arm, whose commands must be near each other. Positions are (7,) rad.

    Args:
        period_s: Seconds between two commands.

    Attributes:
        sent: Number of commands sent.
    """

    def __init__(self, name: str, period_s: float) -> None:
        self.name = name
        self.sent = 0
        self._period_s = period_s
        self._last: Vector = np.zeros(JOINTS)
        self._event = Interlock.NONE

    @property
    @abstractmethod
    def motion(self) -> tuple[Vector, Vector, Vector]:
        """(7,) position in rad, velocity in rad/s and external torque in Nm, as measured last."""

    @property
    @abstractmethod
    def refusal(self) -> Interlock:
        """The interlock that lasts."""

    @property
    def anchor(self) -> Vector:
        """(7,) position that the next command must continue."""
        return self._last

    def _notice(self, event: Interlock) -> None:
        """Keeps an event until the next `_take_event`; of several, the gravest."""
        self._event = max(self._event, event)

    def _take_event(self) -> Interlock:
        event = self._event
        self._event = Interlock.NONE
        return event

    def _is_near(self, position: Vector) -> bool:
        """Returns whether a command is near the last one; if not, it is refused and noticed."""
        farthest = _FASTEST_RAD_S * self._period_s + _ROUNDING_RAD
        if np.abs(position - self._last).max() <= farthest:
            return True
        self._notice(Interlock.FAR)  # NaN as well.
        return False


class Link(Protocol):
    """A connection to one controller or several."""

    listener: BusListener | None

    def fileno(self) -> int:
        """Descriptor to wait on."""
        ...

    def open(self) -> None:
        """Opens the connection; raises ValueError if that is not possible."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class Controller(Protocol):
    """A program that publishes the state of one arm or several, and clocks their commands.

    Attributes:
        pending: Whether a command is due.
        fresh: Whether a message has arrived since the last read.
        misses: Consecutive reads without a message.
    """

    pending: bool
    fresh: bool
    misses: int

    @property
    def lost(self) -> bool:
        """Whether it or its connection is gone."""
        ...

    @property
    def accepts(self) -> bool:
        """Whether a command can be sent now."""
        ...

    @property
    def stands(self) -> bool:
        """Whether its arms have come to rest at their last command, for lack of another."""
        ...

    def problem(self) -> str:
        """Returns the difference between its messages and the configuration; empty if none."""
        ...


class ArmUnit(NamedTuple):
    """An arm with its controller and its gripper."""

    controller: Controller
    arm: KukaArm
    gripper: Gripper


def state_of(units: Sequence[ArmUnit], time: float, interlocks: Collection[Interlock]) -> ArmState:
    """Returns the state of arms: controllers, then grippers that measure, count as servos.

    `time` is the arrival of the last message, seconds on the clock of the device process.
    """
    rows = []
    for unit in units:
        gripper = unit.gripper.state
        values = (gripper.opening, gripper.speed, gripper.force, unit.gripper.wanted)
        joints = (*unit.arm.motion, unit.arm.anchor)
        rows.append([np.append(row, one) for row, one in zip(joints, values, strict=True)])
    position, velocity, effort, commanded = (
        np.concatenate(parts) for parts in zip(*rows, strict=True)
    )
    controllers = [unit.controller for unit in units]
    grippers = [unit.gripper.state for unit in units if unit.gripper.servo]
    errors = [0] * len(controllers) + [one.error for one in grippers]
    misses = [one.misses for one in controllers] + [one.misses for one in grippers]
    return ArmState(
        time=time,
        position=position,
        velocity=velocity,
        effort=effort,
        servo_error=np.array(errors, dtype=np.uint16),
        servo_misses=np.array(misses, dtype=np.int32),
        lost=np.array([one.lost for one in controllers]),
        interlock=np.array(list(interlocks), dtype=np.uint8),
        commanded=commanded,
        accepts=np.array([one.accepts for one in controllers]),
        stands=np.array([one.stands for one in controllers]),
    )
