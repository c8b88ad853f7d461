"""Goals that arrived at an arm, held against limits as they come; memory does not grow with their number."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_ROUNDING = 1e-9


class ArmCheck:
    """Counts goals, and those that are outside a limit. Vectors are (n,), rad and openings.

    Args:
        lower: Smallest goal.
        upper: Largest goal.
        step: Largest distance from one goal to the next.
        change: Largest change of that.

    Attributes:
        goals: Looked at so far.
        violations: Goals outside a limit.
        velocity: Largest share of the step that is allowed.
        acceleration: Largest share of its change that is allowed.
        beyond: How far a goal was outside of `lower` and `upper`; negative if none was.
        resumed: Largest step with which an episode began where the arms stood.
    """

    def __init__(self, lower: Vector, upper: Vector, step: Vector, change: Vector) -> None:
        self._lower = lower
        self._upper = upper
        self._step = step
        self._change = change
        self._last: Vector | None = None
        self._moved = np.zeros_like(lower)
        self._begins = False
        self.goals = self.violations = 0
        self.velocity = self.acceleration = self.resumed = 0.0
        self.beyond = -np.inf

    def take(self, goals: Vector, *, begins: bool, departed: bool = False) -> None:
        """Looks at further goals.

        Args:
            goals: (T, n).
            begins: Whether an episode begins with them, at rest.
            departed: Whether its first goal may be a step away already from where it began. That
                step cannot be seen, so the next one may be larger by what may have been the first.
        """
        if not len(goals):
            return
        last = self._last
        if begins and last is not None:
            self.resumed = max(self.resumed, float(np.abs(goals[0] - last).max()))
        if begins or last is None:
            last = goals[0]
            self._moved = np.zeros_like(self._lower)
            self._begins = begins and departed
        path = np.concatenate([last[None], goals])
        moved = np.concatenate([self._moved[None], np.diff(path, axis=0)])
        outside = np.maximum(self._lower - goals, goals - self._upper).max(axis=1)
        fast = (np.abs(moved[1:]) / self._step).max(axis=1)
        sudden = (np.abs(np.diff(moved, axis=0)) / self._change).max(axis=1)
        first = 1 if begins else 0
        if self._begins and first < len(goals):
            sudden[first] = max(sudden[first] - 1.0, 0.0)
            self._begins = False
        bad = ~((outside <= _ROUNDING) & (fast <= 1 + _ROUNDING) & (sudden <= 1 + _ROUNDING))
        self.goals = self.goals + len(goals)
        self.violations = self.violations + int(bad.sum())
        self.beyond = max(self.beyond, float(outside.max()))
        self.velocity = max(self.velocity, float(fast.max()))
        self.acceleration = max(self.acceleration, float(sudden.max()))
        self._last = path[-1]
        self._moved = moved[-1]

    def halt(self) -> None:
        """Takes note that the arm came to rest without a goal: the next step is one from rest."""
        self._moved = np.zeros_like(self._moved)
