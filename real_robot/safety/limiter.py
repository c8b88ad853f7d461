"""Velocity, acceleration and position limits on a stream of targets, with room to stop.

Time is discrete, one target per period. From speed v a joint that slows down by a*dt each period
travels D(v) = dt (v + (v - a dt) + (v - 2 a dt) + ...), all terms above zero. A speed is allowed
only if D(v) fits between the joint and its bound. Slowing down by a*dt is then allowed in every
later period as well, so position, velocity and acceleration bounds hold for any targets.
"""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_ROUNDING = 1e-9


def stoppable_speed(room: Vector, step: Vector, period_s: float) -> Vector:
    """Returns the largest speed (...) from which a joint stops within `room`: the inverse of D.

    Args:
        room: (...) distance left, with that of the coming period.
        step: (...) largest change of speed from one period to the next, a*dt.
        period_s: dt.
    """
    units = np.maximum(room, 0.0) / (step * period_s)
    terms = np.maximum(1.0, np.ceil((np.sqrt(1 + 8 * units) - 1) / 2))
    return np.asarray(step * (units / terms + (terms - 1) / 2))


def _clipped(value: Vector, low: Vector, high: Vector) -> Vector:
    """Returns what `np.clip` does, in a third of its time."""
    return np.asarray(np.minimum(np.maximum(value, low), high))


class MotionLimiter:
    """Converts any stream of targets to one within the limits. All arrays are (J,).

    Args:
        velocity: Largest speed, per second.
        acceleration: Largest change of speed, per second squared.
        period_s: Time from one target to the next.

    Attributes:
        position: The last command.
        speed: Its change from the command before, per second.
        braking: Speed of the coming period if every joint brakes: by the acceleration in force when
            the last command was checked, also if the limits have grown since.

    Raises:
        ValueError: A limit is out of its range.
    """

    def __init__(
        self, lower: Vector, upper: Vector, velocity: Vector, acceleration: Vector, period_s: float
    ) -> None:
        positive = (velocity > 0).all() and (acceleration > 0).all() and period_s > 0
        if not positive or not (lower < upper).all():
            raise ValueError(
                "Motion limits need lower < upper, and a positive velocity, acceleration and "
                "period."
            )
        self._lower = lower
        self._upper = upper
        self._velocity = velocity
        self._acceleration = acceleration
        self._period_s = period_s
        self.position = np.zeros_like(lower)
        self.speed = np.zeros_like(lower)
        self.braking = np.zeros_like(lower)
        self._braking_scale = np.ones_like(lower)
        self._target = self.position
        self._allowed: tuple[float, tuple[Vector, Vector]] | None = None

    def start(self, position: Vector) -> None:
        """Starts at rest from `position`; joints that are out of bounds may only return."""
        self.position = position.copy()
        self.speed = np.zeros_like(position)
        self.braking = np.zeros_like(position)
        self._target = self.position
        self._allowed = None

    def restart(self, where: NDArray[np.bool_], position: Vector) -> None:
        """Restarts joints (J,) at rest from `position`, after another controller has moved them."""
        self.position = np.where(where, position, self.position)
        self.speed = np.where(where, 0.0, self.speed)
        self.braking = np.where(where, 0.0, self.braking)
        self._target = self.position
        self._allowed = None

    def propose(self, target: Vector, scale: float = 1.0) -> Vector:
        """Returns the allowed speed (J,) that follows the target best; `commit` applies it.

        A joint that lags behind catches up no faster than it can match the target's own motion
        again, so a target that halts is not overshot, and a target within the limits is followed
        without delay.

        Args:
            target: Requested at the end of the coming period.
            scale: Share of velocity and acceleration in force, above 0; it may grow in time but not
                shrink.
        """
        largest = scale * self._velocity
        drift = _clipped((target - self._target) / self._period_s, -largest, largest)
        self._target = target
        return self._towards(target - drift * self._period_s, drift, scale)

    def settle(self, rest: Vector, scale: float = 1.0) -> Vector:
        """Returns the allowed speed (J,) that stops soonest at `rest` (J,) or the bound before."""
        return self._towards(rest, np.zeros_like(rest), scale)

    def _towards(self, place: Vector, drift: Vector, scale: float) -> Vector:
        """Returns the allowed speed that approaches a position which moves at the speed `drift`."""
        low, high = self.allowed(scale)
        gap = place - self.position
        step = scale * self._acceleration * self._period_s
        return _clipped(
            drift + np.sign(gap) * stoppable_speed(np.abs(gap), step, self._period_s), low, high
        )

    def allowed(self, scale: float = 1.0) -> tuple[Vector, Vector]:
        """Returns the lowest and highest speed (J,) of the coming period, see `propose`."""
        if self._allowed is None or self._allowed[0] != scale:
            self._allowed = scale, self._bounds(scale)
        return self._allowed[1]

    def _bounds(self, scale: float | Vector) -> tuple[Vector, Vector]:
        step = scale * self._acceleration * self._period_s
        largest = scale * self._velocity
        rooms = np.array([self._upper - self.position, self.position - self._lower])
        above, below = stoppable_speed(rooms, step, self._period_s)
        # Braking stays allowed even where rounding leaves no speed between the bounds.
        low = np.minimum(
            np.maximum(self.speed - step, -np.minimum(largest, below)),
            np.maximum(self.speed - step, 0.0),
        )
        high = np.maximum(
            np.minimum(self.speed + step, np.minimum(largest, above)),
            np.minimum(self.speed + step, 0.0),
        )
        return np.minimum(low, high), high

    def stopping(self, speed: Vector, scale: float = 1.0) -> Vector:
        """Returns the targets (T, J) until rest: a period at `speed` (J,), and braking after it."""
        step = self._scale_after(speed, scale) * self._acceleration * self._period_s
        later = np.arange(max(1, int(np.ceil((np.abs(speed) / step).max()))))[:, None]
        speeds = np.sign(speed) * np.maximum(np.abs(speed) - later * step, 0.0)
        return np.asarray(self.position + self._period_s * np.cumsum(speeds, axis=0))

    def rest(self, speed: Vector, scale: float = 1.0) -> Vector:
        """Returns the last pose (J,) of `stopping`."""
        step = self._scale_after(speed, scale) * self._acceleration * self._period_s
        fast = np.abs(speed)
        periods = np.ceil(fast / step)
        far = periods * (fast - (periods - 1) / 2 * step)
        return np.asarray(self.position + self._period_s * np.sign(speed) * far)

    def rests(self, scale: float = 1.0) -> tuple[Vector, Vector]:
        """Returns the lowest and highest rest positions (J,) of braking after this period."""
        low, high = self.allowed(scale)
        return self.rest(low, scale), self.rest(high, scale)

    def rest_towards(self, target: Vector, joints: NDArray[np.int64], scale: float = 1.0) -> Vector:
        """Returns the rest positions (H,) of joints whose distances shrink by the same share.

        The joints (H,) are indices into the target (J,). For `scale` see `propose`.
        """
        low, high = (rest[joints] for rest in self.rests(scale))
        start = self.rest(self.braking, scale)[joints]
        way = target[joints] - start
        room = np.where(way > 0, high - start, start - low)
        shares = room[np.abs(way) > _ROUNDING] / np.abs(way[np.abs(way) > _ROUNDING])
        return np.asarray(start + shares.min(initial=1.0) * way)

    def _scale_after(self, speed: Vector, scale: float) -> Vector:
        """Returns the scale (J,) of braking after a speed (J,): braking joints go on as before."""
        return np.where(speed == self.braking, self._braking_scale, scale)

    def commit(
        self, speed: Vector, scale: float = 1.0, waits: NDArray[np.bool_] | bool = False
    ) -> Vector:
        """Moves by one period at an allowed speed (J,) and returns the new target (J,).

        The period does not count for joints in `waits` (J,): their commands are frozen.
        """
        after = self._scale_after(speed, scale)
        self._braking_scale = np.where(waits, self._braking_scale, after)
        self.position = np.where(waits, self.position, self.position + speed * self._period_s)
        self.speed = np.where(waits, self.speed, speed)
        self._allowed = None
        low, high = self._bounds(self._braking_scale)
        self.braking = _clipped(np.zeros_like(low), low, high)
        return self.position

    def forget_target(self) -> None:
        """Ends the motion of the target: the next one does not continue the last."""
        self._target = self.position
