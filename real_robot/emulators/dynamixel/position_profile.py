"""The trajectory from which a servo takes its targets between two goals: a trapezoid of speed.

ROBOTIS e-manual of the X series, "Profile Velocity(112)". With a Profile Velocity of 0 the goal is
the target at once. With a Profile Acceleration of 0 the speed is a rectangle. A goal that arrives
during the motion continues at the present speed ("velocity override"). In the time-based profile of
Drive Mode, Profile Velocity is the duration and Profile Acceleration that of each ramp, in ms.
"""

import math

_VELOCITY_TICKS_S = 0.229 * 4096 / 60
_ACCELERATION_TICKS_S2 = 214.577 * 4096 / 60**2
_MS = 1e-3


class PositionProfile:
    """Moves a position to a goal, both in ticks.

    Attributes:
        position: Present target.
        velocity: Its speed, ticks/s.
    """

    def __init__(self, position: float = 0.0) -> None:
        self._acceleration = self._most = math.inf
        self._goal = position
        self.rest(position)

    @property
    def used(self) -> bool:
        """Whether the goal in force has a profile."""
        return self._most < math.inf

    def rest(self, position: float) -> None:
        """Begins again at a position, at rest."""
        self.position = position
        self.velocity = 0.0

    def aim(self, goal: int, velocity: int, acceleration: int, *, timed: bool) -> None:
        """Sets a goal and its profile.

        Args:
            goal: Value of Goal Position.
            velocity: Value of Profile Velocity.
            acceleration: Value of Profile Acceleration.
            timed: Whether the profile is time-based.
        """
        self._goal = goal
        self._most = velocity * _VELOCITY_TICKS_S if velocity else math.inf
        self._acceleration = acceleration * _ACCELERATION_TICKS_S2 if acceleration else math.inf
        if not velocity:
            self.rest(goal)
        elif timed:
            ramp_s = min(acceleration, velocity / 2) * _MS  # The servo limits it to one half.
            self._most = abs(goal - self.position) / (velocity * _MS - ramp_s)
            self._acceleration = self._most / ramp_s if ramp_s else math.inf

    def advance(self, seconds: float) -> None:
        """Advances towards the goal."""
        left = self._goal - self.position
        side = math.copysign(1.0, left)
        before = side * self.velocity
        change = self._acceleration * seconds
        arrives = abs(left) <= (change / 2 if change < math.inf else self._most) * seconds
        if arrives and abs(before) <= change:
            self.rest(self._goal)
            return
        after = min(self._speed(abs(left), before, seconds), self._most)
        after = min(max(after, before - change), before + change)
        mean = after if change == math.inf else (before + after) / 2
        self.position += side * mean * seconds
        self.velocity = side * after

    def _speed(self, left: float, before: float, seconds: float) -> float:
        """Returns the largest speed after a step from which braking ends at the goal.

        The step covers (before + after) / 2 * seconds, and braking after^2 / (2 acceleration).
        """
        if self._acceleration == math.inf:
            return math.inf
        half = self._acceleration * seconds / 2
        square = half**2 + 2 * self._acceleration * (left - before * seconds / 2)
        return math.sqrt(square) - half if square > 0 else -math.inf
