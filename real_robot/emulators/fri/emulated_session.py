"""The session of an emulated controller, and its application: a motion with a joint overlay."""

from dataclasses import dataclass

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.drivers.fri.enums import Quality, SessionState
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.emulators.fri.connection_quality import QualityRule
from stringline.real_robot.emulators.fri.t1_speed import T1Supervision

# An application waits before it begins its motion, and the controller before it follows a client.
_READY_PERIODS = 5
_WAIT_PERIODS = 5


@dataclass(frozen=True, eq=False)
class ControllerSettings:
    """Settings of a controller.

    Attributes:
        lower: (7,) lower axis limits, rad.
        upper: (7,) upper axis limits, rad.
        fastest: (7,) rad/s; a command that is farther from the last than this allows causes a
            safety stop.
        t1: Supervision of the Cartesian speed in T1.
        send_period_ms: Milliseconds between two messages.
        restarts: Whether the application begins its motion again after an interruption.
    """

    version: FriVersion
    lower: Vector
    upper: Vector
    fastest: Vector
    send_period_ms: int
    receive_multiplier: int
    restarts: bool
    rule: QualityRule
    t1: T1Supervision


class EmulatedSession:
    """Changes its state as Sunrise does.

    Attributes:
        wants_motion: Whether the application is in its motion or about to begin it.
    """

    def __init__(self, *, restarts: bool) -> None:
        self._restarts = restarts
        self.wants_motion = True
        self.state = SessionState.MONITORING_WAIT
        self._periods = 0

    @property
    def commanding(self) -> bool:
        """Whether a motion is in progress."""
        return self.state in (SessionState.COMMANDING_WAIT, SessionState.COMMANDING_ACTIVE)

    def advance(self, quality: Quality, *, may_move: bool, follows: bool) -> None:
        """Advances by a period.

        `may_move`: the safety controller allows motion. `follows`: the client repeats the
        controller's position, as it must before it may command.
        """
        self._periods += 1
        good = quality >= Quality.GOOD
        match self.state:
            case SessionState.MONITORING_WAIT if good:
                self._go(SessionState.MONITORING_READY)
            case SessionState.MONITORING_READY if not good:
                self._go(SessionState.MONITORING_WAIT)
            case SessionState.MONITORING_READY if (
                may_move and self.wants_motion and self._periods >= _READY_PERIODS
            ):
                self._go(SessionState.COMMANDING_WAIT)
            case SessionState.COMMANDING_WAIT | SessionState.COMMANDING_ACTIVE if not good:
                self.break_off(SessionState.MONITORING_WAIT)
            case SessionState.COMMANDING_WAIT if follows and self._periods >= _WAIT_PERIODS:
                self._go(SessionState.COMMANDING_ACTIVE)
            case _:
                pass

    def break_off(self, state: SessionState = SessionState.MONITORING_READY) -> None:
        """Ends a motion in progress."""
        if self.commanding:
            self._go(state)
            self.wants_motion = self._restarts

    def _go(self, state: SessionState) -> None:
        self.state = state
        self._periods = 0
