"""Checks the goals that arrive at an arm against limits, in constant memory."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_ROUNDING = 1e-9


class ArmCheck:
    """Counts goals, and those outside a limit. Vectors are (n,), rad and openings.

    Args:
        lower: Smallest goal.
        upper: Largest goal.
        step: Largest step from one goal to the next.
        change: Largest change of the step.

    Attributes:
        goals: Number of goals.
        violations: Number of goals outside a limit.
        velocity: Largest step as a share of the allowed one.
        acceleration: Largest change of the step as a share of the allowed one.
        beyond: Largest distance of a goal from `lower` and `upper`; negative inside.
        resumed: Largest step at the beginning of an episode.
    """

    def __init__(self, lower: Vector, upper: Vector, step: Vector, change: Vector) -> None:
        self._lower = lower
        self._upper = upper
        self._step = step
        self._change = change
        self._last: Vector | None = None
        self._moved = np.zeros_like(lower)
        self._begins = False
        self._may_rest = False
        self.goals = 0
        self.violations = 0
        self.velocity = 0.0
        self.acceleration = 0.0
        self.resumed = 0.0
        self.beyond = -np.inf

    @property
    def last(self) -> Vector | None:
        """The last goal (n,), or None before the first."""
        return self._last

    @property
    def fits_rest(self) -> bool:
        """Whether the last step may have been one from rest."""
        return bool((np.abs(self._moved) <= self._change * (1 + _ROUNDING)).all())

    def take(self, goals: Vector, *, begins: bool, departed: bool = False) -> None:
        """Checks further goals (T, n).

        `begins`: an episode begins with them, at rest. `departed`: its first goal may already be a
        step away from its beginning. That step is unknown, so the next change may be larger by one
        step.
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
        if self._may_rest:
            sudden[0] = min(sudden[0], float((np.abs(moved[1]) / self._change).max()))
            self._may_rest = False
        first = 1 if begins else 0
        if self._begins and first < len(goals):
            sudden[first] = max(sudden[first] - 1.0, 0.0)
            self._begins = False
        bad = ~((outside <= _ROUNDING) & (fast <= 1 + _ROUNDING) & (sudden <= 1 + _ROUNDING))
        self.goals += len(goals)
        self.violations += int(bad.sum())
        self.beyond = max(self.beyond, float(outside.max()))
        self.velocity = max(self.velocity, float(fast.max()))
        self.acceleration = max(self.acceleration, float(sudden.max()))
        self._last = path[-1]
        self._moved = moved[-1]

    def halt(self) -> None:
        """Notes that the arm came to rest without a goal: the next step is one from rest."""
        self._moved = np.zeros_like(self._moved)

    def may_halt(self) -> None:
        """Notes that the arm may have come to rest, as the sender of its goals saw it.

        The next step is one from rest, or continues the last one.
        """
        self._may_rest = True
