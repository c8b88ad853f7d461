"""One LBR arm: the position at which commands continue, and its interlocks."""

from abc import ABC, abstractmethod

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
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
