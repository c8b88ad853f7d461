"""What cameras make the arms do, in words, at the moment when it happens."""

from collections.abc import Callable, Sequence

from stringline.real_robot.device_state import DeviceState
from stringline.real_robot.reasons import old_cameras


class CameraWords:
    """Says when the arms begin to hold because a camera shows nothing new, and when they see again.

    Args:
        names: Of the cameras.
        say: Shows a line.
    """

    def __init__(self, names: Sequence[str], say: Callable[[str], None]) -> None:
        self._names, self._say = tuple(names), say
        self._tick, self._since = -1, 0.0
        self._silent: tuple[str, ...] = ()

    def note(self, states: Sequence[DeviceState]) -> None:
        """Takes recent states, oldest first; those that were taken before are left out."""
        for state in states:
            if state.tick <= self._tick:
                continue
            self._tick = state.tick
            silent = tuple(old_cameras(state.old_cameras, self._names))
            if silent and silent != self._silent:
                self._since = self._since if self._silent else state.arms.time
                self._say(f"The arms hold: {', '.join(silent)} shows nothing new.")
            elif self._silent and not silent:
                self._say(f"The cameras see again, after {state.arms.time - self._since:.1f} s.")
            self._silent = silent
