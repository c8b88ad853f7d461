"""Takes the arms from pose to pose and has images taken where they rest: a policy's session like any other.

So its plans go through the mailbox and the safety filter, and what holds or stops a policy holds or
stops it as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.contract import Observation
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.limits import SafetyLimits

ASK_S = 0.2  # Between two plans.
_AHEAD_S = 2.0  # Of a plan.
_SHORTEST_S = 0.8  # Of a way.
_STEEPEST = 1.875  # Of the way of least jerk: its largest speed over its mean one.
_STILL = 0.004  # rad; servos flicker by a tick of 0.0015 to both sides.
_ARRIVED = 0.1  # rad; less than gravity and play may keep real arms from.
_PATH_POINTS = 12
_NEAR = 0.5  # rad, as of a policy's first move.


@dataclass(frozen=True, eq=False)
class _Way:
    """From one pose to another, with the least jerk between two poses at rest.

    Attributes:
        start: (J,).
        goal: (J,).
        begins: Seconds on the clock of the observations.
        seconds: How long it takes.
    """

    start: Vector
    goal: Vector
    begins: float
    seconds: float

    def at(self, times: Vector) -> Vector:
        """Returns where the arms are to be (T, J)."""
        share = np.clip((times - self.begins) / self.seconds, 0.0, 1.0)
        smooth = (10 * share**3 - 15 * share**4 + 6 * share**5)[:, None]
        return np.asarray(self.start + smooth * (self.goal - self.start))


class PoseVisit:
    """Visits poses, one after the other.

    Grippers stay as they are found, whatever openings the poses name.

    Args:
        body: That is moved.
        control_hz: Actions per second.
        settings: Poses, and how long the arms have to rest.
        take: Gets the number of the pose, from 1, and the observation, for each look.
        say: Shows a line.

    Attributes:
        reached: How many poses were reached.
    """

    def __init__(
        self,
        body: Embodiment,
        control_hz: float,
        settings: CalibrationSettings,
        *,
        take: Callable[[int, Observation], None],
        say: Callable[[str], None],
    ) -> None:
        assert settings.poses is not None
        self._body = body
        self._period_s = 1.0 / control_hz
        self._settings = settings
        self._poses = settings.poses
        self._take = take
        self._say = say
        self._hinges = np.concatenate([body.hinges[arm] for arm in body.arms])
        self._grippers = [body.grippers[arm] for arm in body.arms]
        self._openings: Vector | None = None
        self._next = 0
        self._looks = 0
        self.reached = 0
        self._way: _Way | None = None
        self._seen_until = -np.inf
        self._still_at = np.full(len(body.joints), np.inf)
        self._still_since = np.inf

    @property
    def done(self) -> bool:
        """Whether all poses were visited."""
        return self._next >= len(self._poses)

    @property
    def longest_s(self) -> float:
        """Seconds that it can take, if every pose takes all the patience there is."""
        ways = sum(
            self._seconds(a, b) for a, b in zip(self._poses[:-1], self._poses[1:], strict=True)
        )
        first = self._seconds(self._body.lower, self._body.upper)
        return float(
            ways + first + len(self._poses) * (self._settings.settle_s + self._settings.patience_s)
        )

    def again(self) -> "PoseVisit":
        """Begins anew where the arms are, after they held: with the pose that was not done."""
        self._way = None
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers an observation with what the arms do next, after a look at it where they rest."""
        now = float(observation["time"])
        q = observation["joints/position"].astype(np.float64)
        if np.abs(q - self._still_at)[self._hinges].max() > _STILL:
            self._still_at = q
            self._still_since = now
        if self._openings is None:
            self._openings = q[self._grippers]
        if self._way is None:
            self._looks = 0
            self._way = self._to(min(self._next, len(self._poses) - 1), q, now)
        elif not self.done and now >= self._way.begins + self._way.seconds:
            self._look(observation, now, q)
        times: Vector = now + self._period_s * np.arange(
            round(_AHEAD_S / self._period_s) + 1, dtype=np.float64
        )
        return ActionChunk(times, self._way.at(times).astype(np.float32))

    def _look(self, observation: Observation, now: float, q: Vector) -> None:
        """Takes images if the arms rest at the pose and the cameras have seen that; goes on when there are enough."""
        assert self._way is not None
        off = np.abs(q - self._way.goal)[self._hinges]
        rested = self._still_since + self._settings.settle_s
        oldest = min(float(observation[f"time/{name}"]) for name in self._settings.needed)
        if off.max() <= _ARRIVED and oldest >= rested and oldest > self._seen_until:
            self._seen_until = oldest
            self._looks = self._looks + 1
            self._take(self._next + 1, observation)
            if self._looks == self._settings.looks:
                self.reached += 1
                self._go_on(now)
        elif (
            now
            > self._way.begins
            + self._way.seconds
            + self._settings.settle_s
            + self._settings.patience_s
        ):
            joint = self._body.joints[int(self._hinges[off.argmax()])].name
            why = (
                f"{joint} is {off.max():.2f} rad away"
                if off.max() > _ARRIVED
                else "the arms do not rest, or a camera stands still"
            )
            self._say(f"Pose {self._next + 1} was not reached: {why}.")
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        assert self._way is not None
        self._next = self._next + 1
        self._looks = 0
        if not self.done:
            self._way = self._to(self._next, self._way.goal, now)

    def _to(self, index: int, start: Vector, now: float) -> _Way:
        """Returns the way to a pose, with the grippers as they were found: what they hold is not to be let go of."""
        goal = self._poses[index].copy()
        goal[self._grippers] = self._openings
        return _Way(start, goal, now, self._seconds(start, goal))

    def _seconds(self, start: Vector, goal: Vector) -> float:
        farthest = float(np.abs(goal - start)[self._hinges].max())
        return max(_SHORTEST_S, _STEEPEST * farthest / self._settings.speed)


def demand_reachable(
    poses: Sequence[Vector] | Vector, body: Embodiment, limits: SafetyLimits
) -> str:
    """Looks at poses and at the straight ways between them before anything moves; the safety filter does so again.

    Args:
        poses: (J,) each.
        body: That is moved.
        limits: Of the safety filter.

    Raises:
        ValueError: One is beyond a limit, or on the way something touches the table, a wall, or the
            other arm.
    """
    before: Vector | None = None
    for number, pose in enumerate(poses, 1):
        for index, joint in enumerate(body.joints):
            if not limits.lower[index] <= pose[index] <= limits.upper[index]:
                raise ValueError(
                    f"pose {number}: {joint.name} is {pose[index]:.3f}; allowed: "
                    f"{limits.lower[index]:.3f} to "
                    f"{limits.upper[index]:.3f}."
                )
        if before is None:
            _demand_clear(pose, pose, number, body, limits, points=1)
        else:
            _demand_clear(before, pose, number, body, limits)
        before = pose
    return f"{len(poses)}, in reach"


def demand_first_way(
    start: Vector, pose: Vector, body: Embodiment, limits: SafetyLimits, *, near: bool
) -> None:
    """Looks at the straight way from where the arms stand to the first pose, before they move.

    Args:
        start: (J,) measured.
        pose: (J,) the first one.
        body: That is moved.
        limits: Of the safety filter.
        near: Whether it has to be a short one, because nobody brought the arms to where they stand.

    Raises:
        ValueError: It is long though it should not be, or on the way something touches the table, a
            wall, or the other arm.
    """
    hinges = np.concatenate([body.hinges[arm] for arm in body.arms])
    off = np.abs(pose - start)[hinges]
    if near and off.max() > _NEAR:
        raise ValueError(
            f"Pose 1 is {off.max():.2f} rad away from where "
            f"{body.joints[int(hinges[off.argmax()])].name} is; allowed: "
            f"{_NEAR}. Bring the arms near to it, or let them move to their home pose first "
            f"(robot.approach_s=8)."
        )
    _demand_clear(start, pose, 1, body, limits)


def _demand_clear(
    start: Vector,
    pose: Vector,
    number: int,
    body: Embodiment,
    limits: SafetyLimits,
    points: int = _PATH_POINTS,
) -> None:
    """Looks at the straight way to a pose; where it begins was looked at before, or is where the arms are."""
    clearance = Clearance(body, limits.table_height, limits.box, exact_up_to=limits.arm_clearance)
    for share in np.linspace(1.0, 0.0, points, endpoint=False)[::-1]:
        room = clearance.measure(start + share * (pose - start))
        where = f"pose {number}" if share == 1.0 else f"the way to pose {number}"
        _demand_room(float(room.heights.min()), limits.table_clearance, where, "over the table")
        _demand_room(float(room.walls.min()), 0.0, where, "from a wall")
        _demand_room(float(room.between.min()), limits.arm_clearance, where, "from the other arm")


def _demand_room(have_m: float, needed_m: float, where: str, what: str) -> None:
    if have_m < needed_m:
        raise ValueError(
            f"{where}: an arm would be {1e3 * have_m:.0f} mm {what}; needed: {1e3 * needed_m:.0f}."
        )
