"""The session of an emulated controller, and the application on it: a motion with a joint overlay, begun again and again."""

from stringline.real_robot.drivers.fri.enums import Quality, SessionState

# An application waits a moment before it begins its motion, and the controller before it follows a
# client.
_READY_PERIODS = 5
_WAIT_PERIODS = 5


class EmulatedSession:
    """Goes through the states as Sunrise does.

    Args:
        restarts: Whether the application begins its motion anew after it was broken off.

    Attributes:
        state: Of the session.
        wants_motion: Whether the application is about to begin, or in, its motion.
    """

    def __init__(self, *, restarts: bool = True) -> None:
        self._restarts = restarts
        self.wants_motion = True
        self.state = SessionState.MONITORING_WAIT
        self._periods = 0

    @property
    def commanding(self) -> bool:
        """Whether a motion is under way."""
        return self.state in (SessionState.COMMANDING_WAIT, SessionState.COMMANDING_ACTIVE)

    def advance(self, quality: Quality, *, may_move: bool, follows: bool) -> None:
        """Goes on by a period.

        Args:
            quality: Of the connection.
            may_move: Whether the safety controller lets the arm move.
            follows: Whether the client repeats the controller's position, as it has to before it
                may command.
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
        """Ends the motion, if one is under way."""
        if self.commanding:
            self._go(state)
            self.wants_motion = self._restarts

    def _go(self, state: SessionState) -> None:
        self.state = state
        self._periods = 0
