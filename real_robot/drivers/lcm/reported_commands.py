"""The commands that a driver program has passed on, by what its controller reports as commanded.

LCM acknowledges nothing. But each status tells the position that the controller commands, and so
which command was the last that took effect: a command that should be reported and is not was lost,
or is still on its way.
"""

from collections import deque

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector

# A controller reports a command at most that many steps later.
_MOST_BEHIND = 2
_KEPT = 8
# Reported positions are those of the commands but for rounding.
_SAME_RAD = 1e-9


class ReportedCommands:
    """The last commands to one arm. Positions are (7,) rad.

    Args:
        position: Position at which commands begin.
    """

    def __init__(self, position: Vector) -> None:
        self._usual = _MOST_BEHIND
        self.begin(position)

    def begin(self, position: Vector) -> None:
        """Forgets earlier commands: they begin at a position at which the arm stands."""
        self._sent = deque([position], maxlen=_KEPT)
        self._steps = 0

    def note(self, position: Vector) -> None:
        """Notes a command that was sent."""
        self._sent.append(position)
        self._steps = 0

    def missing(self, reported: Vector, steps: int = 1) -> bool:
        """Returns whether a command that should be reported by now is not.

        How many steps later a controller reports a command is learnt from the motion. At rest all
        commands are alike, and nothing can be missing.

        Args:
            reported: Position that the controller commands, by the status of a step.
            steps: Steps of the controller since the status before.
        """
        self._steps += steps
        away = [float(np.abs(one - reported).max()) for one in self._sent]
        nearest = [at for at, one in enumerate(away) if one <= min(away) + _SAME_RAD]
        behind = len(away) - 1 - nearest[-1]
        if len(nearest) == 1 and self._steps == 1:
            self._usual = min(self._usual, max(behind, 1))
        for _ in range(nearest[-1]):
            self._sent.popleft()
        # Without a command in the last steps, the controller has caught up by as many.
        return behind > max(self._usual - (self._steps - 1), 0)
