"""Trajectories between keyposes: smooth targets within the robot's limits.

A free trajectory is a polynomial of degree five for each joint. A straight one is straight for the
gripper, with rest at both ends, and is stretched in time until no joint is beyond its limits.

This module does not import torch.
"""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE, Range
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import angle_between, between
from stringline.policies.execution.motion_space import MotionSpace

logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
_KNOTS_S = 0.08
"""Time between two solutions of the inverse kinematics; joints are interpolated between them."""
_MOST_LONGER = 2.5
"""Factor of the time of a straight part from which its rotation gives way at a singularity."""

_TURNS = 3
"""Turns of a spiral."""
_SEARCH_SPEED = 0.02
"""Mean speed on a spiral, m/s."""


@dataclass(frozen=True, kw_only=True)
class MotionSettings:
    """Speeds, times and distances of the motion.

    Attributes:
        speed: Largest share of the velocity limits of the joints, above 0 to 1.
        acceleration: Largest acceleration of the fastest revolute joint, rad/s^2; that of others is
            lower by the ratio of their velocity limits.
        hand_acceleration: The same of hands that are commanded by their poses, m/s^2.
        straight_speed: Mean speed on straight parts, m/s.
        least_s: Least time of a straight part, s.
        settle_s: Time between arrival and stroke, s.
        close_s: Time from the beginning of a closing stroke until the arm moves on, s.
        open_s: The same of an opening stroke.
        press_m: Distance by which a gripper that opens moves further along its straight way than
            predicted, m: what it inserts is deep enough in spite of errors along the way.
        search_m: Radius of the spiral by which a gripper that something stops on its straight way
            to where it opens searches for the way in, m (Chhatpar and Branicky, 2001); 0: none.
        same_m: A keypose within this distance, m, and the angle same_rad of the gripper's present
            target is where the gripper is: only the gripper acts.
        same_rad: Angle beside same_m, rad.
        jump_m: On the way, a prediction further away than this from the goal must come twice.
        missed: Number of misses at a place after which another mode is chosen.
        rest: Probability that an arm acts below which the arms rest.
        rest_holding: The same while a gripper holds something, which it would not keep for ever.
        reach_m: Remaining error of the kinematics from which a warning names a keypose as out of
            reach, m or rad.
    """

    speed: float = 0.8
    acceleration: float = 7.0
    hand_acceleration: float = 4.0
    straight_speed: float = 0.2
    least_s: float = 0.6
    settle_s: float = 0.12
    close_s: float = 0.5
    open_s: float = 0.35
    press_m: float = 0.0
    search_m: float = 0.0
    same_m: float = 0.025
    same_rad: float = 0.25
    jump_m: float = 0.06
    missed: int = 2
    rest: float = 0.3
    rest_holding: float = 0.1
    reach_m: float = 0.02

    def __post_init__(self) -> None:
        Range(above=0, most=1).check(speed=self.speed)
        Range(least=0, most=0.5).check(rest=self.rest, rest_holding=self.rest_holding)
        Range(least=1, whole=True).check(missed=self.missed)
        for name in ("acceleration", "hand_acceleration", "straight_speed", "least_s", "reach_m"):
            POSITIVE.check(**{name: getattr(self, name)})
        for name in (
            "press_m",
            "search_m",
            "settle_s",
            "close_s",
            "open_s",
            "same_m",
            "same_rad",
            "jump_m",
        ):
            NOT_NEGATIVE.check(**{name: getattr(self, name)})


class TrajectoryPlanner:
    """Plans the trajectories of an episode.

    Args:
        space: The coordinates in which the arms move.
        control_hz: Targets per second.
        settings: See `MotionSettings`.

    Attributes:
        top_speed: (J,) largest speeds, units/s.
    """

    def __init__(self, space: MotionSpace, control_hz: float, settings: MotionSettings) -> None:
        self._space = space
        self._arms = space.arms
        self._dt = 1.0 / control_hz
        self._settings = settings
        self._moving = space.moving
        self.top_speed = settings.speed * space.speeds
        self._top_acceleration = space.accelerations(
            settings.acceleration, settings.hand_acceleration
        )
        self._warned = False

    def solved(self, targets: dict[int, Floats], q: Vector) -> Vector:
        """Returns joints (J,) at, or as near as possible to, the targets of some arms."""
        named = {self._arms[arm]: pose for arm, pose in targets.items()}
        found, errors = self._space.nearest(named, q)
        worst = max(errors, key=lambda arm: errors[arm])
        if errors[worst] > self._settings.reach_m and not self._warned:
            self._warned = True
            logger.warning(
                "A keypose of %s at %s m is out of reach by %.3f (m or rad); the arm goes as near "
                "as it can.",
                worst,
                np.round(named[worst][:3, 3], 3).tolist(),
                errors[worst],
            )
        return found

    def free(self, q: Vector, v: Vector, a: Vector, goal: Vector, least_s: float) -> Floats:
        """Returns targets (T, J) from a state to rest at a goal, within the limits.

        A polynomial of degree five for each joint (minimum jerk; Flash and Hogan, 1985, for rest at
        both ends), stretched until speeds and accelerations are within the limits.
        """
        way = np.abs(goal - q)
        seconds = max(
            least_s,
            float((1.875 * way / self.top_speed).max()),
            float(np.sqrt(5.774 * way[self._moving] / self._top_acceleration[self._moving]).max()),
        )
        start_speed = np.abs(v[self._moving])
        track = q[None]
        for _ in range(40):
            count = max(int(np.ceil(seconds / self._dt)), 2)
            seconds = count * self._dt
            t = self._dt * np.arange(1, count + 1, dtype=np.float64)[:, None]
            track = _polynomial(q, v, a, goal, seconds, t)
            speed = np.abs(np.diff(track, axis=0, prepend=q[None])) / self._dt
            bend = np.abs(np.diff(track, n=2, axis=0)) / self._dt**2
            fast = speed[:, self._moving] / np.maximum(self.top_speed[self._moving], start_speed)
            strong = bend[:, self._moving] / (1.3 * self._top_acceleration[self._moving])
            if fast.max() <= 1.05 and (not len(strong) or strong.max() <= 1.0):
                break
            seconds *= 1.12
        return np.clip(track, self._space.lower, self._space.upper)

    def straight(
        self, q: Vector, targets: dict[int, Floats], least_s: float | None = None
    ) -> Floats | None:
        """Returns targets (T, J) along straight ways with rest at both ends; None means no way."""
        now = self._space.poses(q)
        starts = {arm: now[self._arms[arm]] for arm in targets}
        length = max(float(np.linalg.norm(targets[a][:3, 3] - starts[a][:3, 3])) for a in targets)
        turn = max(angle_between(starts[arm][:3, :3], targets[arm][:3, :3]) for arm in targets)
        if length < 1e-3 and turn < 5e-3:
            return None
        seconds = max(
            self._settings.least_s if least_s is None else least_s,
            length / self._settings.straight_speed,
            turn / 1.0,
        )
        knots = max(int(np.ceil(seconds / _KNOTS_S)), 3)
        shares = np.arange(1, knots + 1) / knots
        solved = [q]
        for share in shares:
            solved.append(self.solved(_on_the_way(starts, targets, share), solved[-1]))
        track = self._timed(np.stack(solved), seconds, _MOST_LONGER)
        if track is None:
            # Past a straight wrist two joints turn fast and far to hold a rotation. Between the
            # same ends the rotation may differ a little instead.
            end = solved[-1]
            bent = [q, *(q + share * (end - q) for share in shares)]
            for knot in range(1, knots):
                poses = _on_the_way(starts, targets, shares[knot - 1])
                named = {self._arms[arm]: pose for arm, pose in poses.items()}
                bent[knot] = self._space.nearest_places(named, bent[knot])
            track = self._timed(np.stack(bent), seconds, 2 * _MOST_LONGER)
        if track is None:
            track = self.free(q, np.zeros_like(q), np.zeros_like(q), solved[-1], seconds)
        return np.clip(track, self._space.lower, self._space.upper)

    def spiral(self, q: Vector, arm: int, centre: Floats, along: Floats, radius: float) -> Floats:
        """Returns targets (T, J) of an arm from the joints q on a spiral around a direction.

        Args:
            q: (J,).
            arm: The arm.
            centre: (4, 4) pose at which the spiral begins; its rotation is kept.
            along: (3,) the direction, of length 1.
            radius: At the end, m.
        """
        side = np.cross(along, np.eye(3)[np.abs(along).argmin()])
        side /= np.linalg.norm(side)
        angles = np.linspace(0.0, 2 * np.pi * _TURNS, 8 * _TURNS + 1)
        solved = [q]
        for angle in angles:
            pose = centre.copy()
            way = np.cos(angle) * side + np.sin(angle) * np.cross(along, side)
            pose[:3, 3] += radius * angle / angles[-1] * way
            solved.append(self.solved({arm: pose}, solved[-1]))
        seconds = np.pi * _TURNS * radius / _SEARCH_SPEED + self._settings.least_s
        track = self._timed(np.stack(solved), seconds, _MOST_LONGER)
        if track is None:
            track = self.free(q, np.zeros_like(q), np.zeros_like(q), solved[1], seconds)
        return np.clip(track, self._space.lower, self._space.upper)

    def _timed(self, path: Floats, seconds: float, longer: float) -> Floats | None:
        """Returns targets (T, J) along a path (K, J) within the limits.

        The time is `seconds` or longer; None if it would be more than `longer` times as long.
        """
        most = longer * seconds
        while seconds <= most:
            count = int(np.ceil(seconds / self._dt))
            u = np.arange(1, count + 1) / count
            track = _along(path, u**3 * (10 - 15 * u + 6 * u**2))
            speed = np.abs(np.diff(track, axis=0, prepend=path[:1])) / self._dt
            bend = np.abs(np.diff(track, n=2, axis=0)) / self._dt**2
            fast = (speed / self.top_speed)[:, self._moving].max()
            strong = (bend[:, self._moving] / (1.3 * self._top_acceleration[self._moving])).max()
            if fast <= 1.0 and strong <= 1.0:
                return track
            seconds *= 1.15
        return None

    def held(self, q: Vector, seconds: float) -> Floats:
        """Returns targets (T, J) that stay for a time."""
        return np.repeat(q[None], max(round(seconds / self._dt), 1), axis=0)


def _on_the_way(
    starts: dict[int, Floats], targets: dict[int, Floats], share: float
) -> dict[int, Floats]:
    return {arm: between(starts[arm], targets[arm], float(share)) for arm in targets}


def _polynomial(q: Vector, v: Vector, a: Vector, goal: Vector, T: float, t: Floats) -> Floats:
    """Returns the polynomials of degree five at times t (N, 1), with rest at the end."""
    way = goal - q
    c3 = (20 * way - 12 * v * T - 3 * a * T**2) / (2 * T**3)
    c4 = (-30 * way + 16 * v * T + 3 * a * T**2) / (2 * T**4)
    c5 = (12 * way - 6 * v * T - a * T**2) / (2 * T**5)
    return np.asarray(q + v * t + a / 2 * t**2 + c3 * t**3 + c4 * t**4 + c5 * t**5)


def _along(path: Floats, shares: Floats) -> Floats:
    """Returns a path (K, J) with equal steps at shares (N,) of its length, by cubic pieces.

    Catmull and Rom's splines, with speeds of one side at both ends.
    """
    steps = len(path) - 1
    slope = np.gradient(path, axis=0)
    place = np.clip(shares * steps, 0.0, steps)
    first = np.minimum(place.astype(int), steps - 1)
    u = (place - first)[:, None]
    p = path[first]
    q = path[first + 1]
    m = slope[first]
    n = slope[first + 1]
    return np.asarray(
        (2 * u**3 - 3 * u**2 + 1) * p
        + (u**3 - 2 * u**2 + u) * m
        + (3 * u**2 - 2 * u**3) * q
        + (u**3 - u**2) * n
    )
