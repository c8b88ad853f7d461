"""What a stage of the safety filter is, and what the stages share.

A `Cycle` has the inputs of a cycle and the decisions so far; the stages read and change it in turn.
All stages are built from one `StageContext`, so that they measure together: the `Surroundings` are
the obstacles of the arms and the room around them, `BrakingPaths` are the ways of the arms from a
period at some speed until rest, each measured once, and `PointSpeeds` are the lengths that points
of the arms travel in a period.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.collision_model import (
    KINDS,
    OBSTACLE,
    OTHER_ARM,
    SAME_ARM,
    Contacts,
    LinkPoints,
    Measured,
    cross,
)
from stringline.real_robot.safety.limiter import MotionLimiter
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason

Vector = NDArray[np.float64]
NONE = Reason(0)
# Reasons for which the arms brake in place of a retreat: a person does not permit motion, or the
# process that could stop it is silent.
NO_MOTION = Reason.RELEASED | Reason.EXTERNAL_STOP | Reason.SUPERVISOR


@dataclass(frozen=True)
class Freshness:
    """Ages of the inputs of a cycle, seconds; 0 for an input that is not monitored.

    Attributes:
        action_age_s: Time since the last action of the plan in force was due.
        supervisor_age_s: Time since the last heartbeat of the owner of the device process.
        image_ages_s: Time since the capture of the newest image of each camera.
        plan_age_s: Time since the observation that the plan in force answers.
        suspended_s: Time since the last cycle in which the computer was suspended; the clock of the
            cycles stands still then.
        permission_age_s: Time since the input of hold-to-run last permitted motion.
        stop_line_age_s: Time since the line of the external stop last permitted motion.
        unsent_s: Longest time for which a command to an arm is overdue: a period after the last
            one that was sent, if the arm can be sent one.
        ahead_s: Time from the beginning of this cycle until its command is due to be sent.
        delayed_s: Time from when the last command was due until it was sent.
    """

    action_age_s: float = 0.0
    supervisor_age_s: float = 0.0
    image_ages_s: tuple[float, ...] = ()
    plan_age_s: float = 0.0
    suspended_s: float = 0.0
    permission_age_s: float = 0.0
    stop_line_age_s: float = 0.0
    unsent_s: float = 0.0
    ahead_s: float = 0.0
    delayed_s: float = 0.0


class Retreat(NamedTuple):
    """The pose to which holding arms return, so that they release what they press against.

    Attributes:
        joints: (J,) bool, joints that return; the others brake.
        pose: (J,) their positions.
    """

    joints: NDArray[np.bool_]
    pose: Vector


@dataclass(eq=False)
class Cycle:
    """Inputs of a cycle and the decisions of the stages so far. Vectors are (J,).

    Attributes:
        target: Requested target, None if no action is due. Stages move it inside the limits.
        state: As measured; the first stage replaces values that cannot be used.
        before: The last state all of whose values can be used.
        now: Time of this cycle, seconds.
        followed_s: Time in which a plan was followed since the arms began to move from rest.
        rejected: Rejected chunks in a row.
        limiter: Holds the last command and its speed; only the filter advances it.
        braking: Speed of the coming period if the arms brake.
        speed: Speed of the coming period.
        scale: Share of the velocity and acceleration limits in force.
        amounts: Reasons that acted, and by how much, in the unit of each reason.
        faults: Reasons that only an operator may reset.
        waits: (J,) joints to which no command can be sent in this cycle; False: none.
        planned_retreat: Pose to which holding arms return if motion is permitted; if None, they
            brake.
    """

    target: Vector | None
    state: ArmState
    before: ArmState
    now: float
    followed_s: float
    freshness: Freshness
    rejected: int
    limiter: MotionLimiter
    braking: Vector
    speed: Vector
    scale: float = 1.0
    amounts: dict[Reason, float] = field(default_factory=dict)
    faults: Reason = NONE
    held: bool = False
    waits: NDArray[np.bool_] | bool = False
    planned_retreat: Retreat | None = None

    @property
    def retreat(self) -> Retreat | None:
        """The retreat; None while the arms must not move at all, so that they brake."""
        acting = functools.reduce(operator.or_, self.amounts, self.faults)
        return None if acting & NO_MOTION else self.planned_retreat

    @property
    def wanted(self) -> Vector | None:
        """The target; None while the arms hold."""
        return None if self.held or self.faults else self.target

    def note(self, reason: Reason, amount: float = 1.0) -> None:
        """Records that a reason acted, and by how much."""
        self.amounts[reason] = max(amount, self.amounts.get(reason, 0.0))

    def hold(self, reason: Reason, amount: float = 1.0) -> None:
        """Makes the arms hold in this cycle."""
        self.note(reason, amount)
        self.held = True

    def fault(self, reason: Reason, amount: float = 1.0) -> None:
        """Makes the arms hold until an operator resets the reason."""
        self.note(reason, amount)
        self.faults |= reason


Indices = NDArray[np.int64]

# The cost of a change is the sum of the squared motion of the gripper and the squared rotations of
# the gripper and the joints (metres per radian), so that joints without effect stay.
_TURN_M = 0.1
_JOINT_M = 0.02


class Space(NamedTuple):
    """An obstacle.

    Attributes:
        reason: Reported when it acts.
        distance: Field of `Room` with the distances from it.
        clearance: Limit that they keep; empty: zero.
    """

    reason: Reason
    distance: str
    clearance: str = ""


SPACES: tuple[Space, ...] = (
    Space(Reason.TABLE, "heights", "table_clearance"),
    Space(Reason.BOX, "walls"),
    Space(Reason.OTHER_ARM, "between", "arm_clearance"),
    Space(Reason.SAME_ARM, "own", "self_clearance"),
    Space(Reason.OBSTACLE, "obstacles", "cell_clearance"),
)
_FIELDS = {OTHER_ARM: "between", SAME_ARM: "own", OBSTACLE: "obstacles"}


class Gaps(NamedTuple):
    """K small distances of capsules from obstacles and each other.

    Attributes:
        near: Their points and normals.
        spaces: (K,) numbers of the obstacles in `SPACES`.
        spare: (K,) clearance to spare, metres.
    """

    near: Contacts
    spaces: Indices
    spare: Vector


class Surroundings:
    """S obstacles around C capsules of each of A arms with J joints and H revolute joints in total.

    Attributes:
        revolute_joints: (H,) indices of the revolute joints in the joint vector, of one arm after
            the other.
        arm_of_revolute: (H,) number of the arm of each revolute joint.
    """

    def __init__(
        self,
        body: Embodiment,
        limits: SafetyLimits,
        clearance: Clearance,
        link_points: Sequence[LinkPoints],
        arm_of_joint: Indices,
    ) -> None:
        self._clearance = clearance
        self._spaces = SPACES
        self._kept = np.array(
            [getattr(limits, space.clearance, 0.0) for space in SPACES], dtype=np.float64
        )
        self._number = {space.distance: number for number, space in enumerate(SPACES)}
        self._space_of_kind = np.array(
            [self._number.get(_FIELDS[kind], -1) for kind in range(KINDS)]
        )
        self.revolute_joints = np.concatenate([body.revolute_joints[arm] for arm in body.arms])
        self.arm_of_revolute = arm_of_joint[self.revolute_joints]
        self._same_arm = self.arm_of_revolute[:, None] == self.arm_of_revolute
        grippers = np.cumsum([len(points.places) for points in link_points]) - 1
        self._gripper = grippers[self.arm_of_revolute]

    def measure(self, q: Vector) -> Measured:
        """Returns the arms at poses (N, J)."""
        return self._clearance.model.measure(q)

    def spare(self, measured: Measured) -> Vector:
        """Returns the clearance to spare (N, S, A, C) at N measured poses, metres."""
        room = self._clearance.room(measured)
        spare = np.empty((len(room.heights), len(self._spaces), *room.heights.shape[1:]))
        for number, space in enumerate(self._spaces):
            np.subtract(getattr(room, space.distance), self._kept[number], out=spare[:, number])
        return spare

    def note(self, cycle: Cycle, short: Vector) -> None:
        """Records the positive entries of the missing clearance (S, A, C), metres."""
        largest = short.reshape(len(self._spaces), -1).max(axis=1, initial=0.0).tolist()
        for space, lacking in zip(self._spaces, largest, strict=True):
            if lacking > 0:
                cycle.note(space.reason, lacking)

    def note_gaps(self, cycle: Cycle, gaps: Gaps, short: Vector) -> None:
        """Records the positive entries of the missing clearance (K,) of gaps, metres."""
        largest = np.zeros((len(self._spaces), 1))
        np.maximum.at(largest[:, 0], gaps.spaces, short)
        self.note(cycle, largest)

    def gaps(
        self, measured: Measured, spare: Vector, poses: NDArray[np.bool_], most: float
    ) -> Gaps:
        """Returns the gaps at the poses in `poses` (N,) with at most so much to spare, metres.

        `spare` (N, S, A, C) is the clearance to spare at all poses.
        """
        contacts = measured.contacts
        spaces = self._space_of_kind[contacts.kinds]
        room = contacts.distances - self._kept[spaces]
        kept = np.flatnonzero((room < most) & poses[contacts.poses] & (spaces >= 0))
        parts = [Gaps(contacts.where(kept), spaces[kept], room[kept])]
        for name, planes in (
            ("heights", self._clearance.from_table),
            ("walls", self._clearance.from_walls),
        ):
            space = self._number.get(name)
            if space is None:
                continue
            close = (spare[:, space] < most) & poses[:, None, None]
            if close.any():
                near = planes(measured, close)
                of_space = np.full(len(near.poses), space)
                parts.append(Gaps(near, of_space, near.distances - self._kept[space]))
        if len(parts) == 1:
            return parts[0]
        return Gaps(
            Contacts.joined([part.near for part in parts]),
            np.concatenate([part.spaces for part in parts]),
            np.concatenate([part.spare for part in parts]),
        )

    def slopes(self, measured: Measured, gaps: Gaps) -> Vector:
        """Returns how the revolute joints change the gaps, (K, H), metres per radian."""
        return self._clearance.model.slopes(measured, gaps.near)

    def lacking(self, gaps: Gaps, least: Vector, margin: float) -> Vector:
        """Returns the room (K,) that gaps lack to have the clearance `least` (S, A, C) to spare.

        Where nothing was lacking before, `margin` more is demanded, metres.
        """
        count = len(least)
        of_place = np.full((count, least[0].size + self._clearance.model.obstacles + 1), -np.inf)
        of_place[:, : least[0].size] = least.reshape(count, -1)
        needed = of_place[gaps.spaces[:, None], gaps.near.places].max(axis=1)
        return np.asarray(needed + margin * (needed == 0.0) - gaps.spare)

    def cost(self, measured: Measured, poses: Indices) -> Vector:
        """Returns the cost (H, H) of joint changes, m^2/rad^2, with each joint at its pose (H,)."""
        revolute = np.arange(len(self.revolute_joints))
        axes = measured.axes[poses, revolute]
        levers = measured.points[poses, self._gripper] - measured.anchors[poses, revolute]
        moved = np.concatenate([cross(axes, levers), _TURN_M * axes], axis=1)
        return np.asarray(moved @ moved.T * self._same_arm + _JOINT_M**2 * np.eye(len(revolute)))


_SAME_RAD = 1e-12  # Poses of last cycle's path are those of this one, up to rounding.


class BrakingPath(NamedTuple):
    """The poses from the coming period until rest, if the arms brake after it.

    Attributes:
        speed: (J,) of the coming period.
        poses: (T, J). Joints that cannot be sent a command move as well.
        measured: The arms at these poses; while joints wait, also at those without their motion.
        spare: (N, S, A, C) clearance to spare at the measured poses, metres.
        least: (S, A, C) the smallest one.
    """

    speed: Vector
    poses: Vector
    measured: Measured
    spare: Vector
    least: Vector


class BrakingPaths:
    """Measures the paths of a cycle, for all stages.

    Braking continues the path of the last cycle, which was measured then.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._arms = int(surroundings.arm_of_revolute.max()) + 1
        self._surroundings = surroundings
        self._cycle: Cycle | None = None
        self._found: dict[bytes, BrakingPath] = {}
        self._before: BrakingPath | None = None

    def of(self, cycle: Cycle, speed: Vector) -> BrakingPath:
        """Returns the path of a period at a speed (J,)."""
        self._begin(cycle)
        key = speed.tobytes()
        path = self._found.get(key)
        if path is None:
            path = self._found[key] = self._new(cycle, speed)
        return path

    def start(self, cycle: Cycle) -> Measured:
        """Returns the arms at the last command, as the first pose."""
        self._begin(cycle)
        position = cycle.limiter.position[None]
        if self._before is not None and _same(self._before.poses[:1], position):
            return self._before.measured
        return self._surroundings.measure(position)

    def room(self, cycle: Cycle) -> Vector:
        """Returns the least clearance to spare (A,) on the path of the last command, metres.

        It is infinite where no path was measured.
        """
        self._begin(cycle)
        if self._before is None:
            return np.full(self._arms, np.inf)
        return np.asarray(self._before.least.min(axis=(0, 2), initial=np.inf))

    def _begin(self, cycle: Cycle) -> None:
        """Forgets the paths of the last cycle, except that of its command."""
        if cycle is not self._cycle:
            self._before = self._found.get(cycle.limiter.speed.tobytes())
            self._cycle = cycle
            self._found = {}

    def _new(self, cycle: Cycle, speed: Vector) -> BrakingPath:
        stopping = cycle.limiter.stopping
        poses = all_poses = stopping(speed, cycle.scale)
        if np.any(cycle.waits):
            frozen = stopping(np.where(cycle.waits, 0.0, speed), cycle.scale)
            all_poses = np.concatenate([poses, frozen])
        elif self._before is not None and len(self._before.spare) == len(self._before.poses):
            count = len(poses)
            if _same(self._before.poses[-count:], poses):
                spare = self._before.spare[-count:]
                measured = self._before.measured.last(count)
                return BrakingPath(speed, poses, measured, spare, spare.min(axis=0))
        measured = self._surroundings.measure(all_poses)
        spare = self._surroundings.spare(measured)
        return BrakingPath(speed, poses, measured, spare, spare.min(axis=0))


def _same(a: Vector, b: Vector) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max() < _SAME_RAD)


_TINY = 1e-300
# Share of the limit that a reduced speed aims at: the estimate of the share is linear.
_AIM = 0.99


class PointSpeeds:
    """P points (`LinkPoints`) of A arms with H revolute joints in total.

    Args:
        link_points: Points of each arm.
        largest_m: Largest length of a step, metres.

    Attributes:
        slowed: (A,) arms that were about as fast as allowed in the last cycle.
    """

    def __init__(self, link_points: Sequence[LinkPoints], largest_m: float) -> None:
        self._largest_m = largest_m
        places = [len(points.places) for points in link_points]
        self._first = np.cumsum([0, *places[:-1]])
        revolute = [len(points.revolute_joints) for points in link_points]
        firsts = np.cumsum([0, *revolute]).tolist()
        self._moves = np.zeros((sum(places), sum(revolute)))
        rows = iter(self._moves)
        for points, first in zip(link_points, firsts[:-1], strict=True):
            for link, _ in points.places:
                next(rows)[first : first + link + 1] = 1.0
        self.slowed = np.zeros(len(places), dtype=np.bool_)

    def fastest(self, steps: Vector) -> Vector:
        """Returns the largest length (A,) of steps (T, P, 3) of each arm, metres."""
        squares = _dot(steps, steps).max(axis=0)
        return np.asarray(np.sqrt(np.maximum.reduceat(squares, self._first)))

    def shares(self, slow: Vector, fast: Vector) -> Vector:
        """Returns the largest shares (A,) of the way from slow to fast steps that are allowed.

        The steps are (T, P, 3), metres.
        """
        largest = _AIM * self._largest_m
        way = fast - slow
        # |slow + share * way|^2 = largest^2
        a = _dot(way, way)
        b = _dot(slow, way)
        c = np.minimum(_dot(slow, slow) - largest**2, 0.0)
        found = (np.sqrt(b * b - a * c) - b) / np.maximum(a, _TINY)
        too_fast = _dot(fast, fast) > largest**2
        least = np.where(too_fast, np.minimum(found, 1.0), 1.0).min(axis=0)
        return np.asarray(np.minimum.reduceat(least, self._first))

    def first_steps(self, measured: Measured, changes: Vector) -> Vector:
        """Returns the motion (N, P, 3) by N changes (N, H) of the first pose, to first order."""
        axes = measured.axes[0]
        # A revolute joint moves a point p by axis x p + anchor x axis per radian.
        screws = np.concatenate([axes, cross(measured.anchors[0], axes)], axis=1)
        moved = (self._moves * changes[:, None]) @ screws
        return np.asarray(cross(moved[..., :3], measured.points[0]) + moved[..., 3:])


def _dot(a: Vector, b: Vector) -> Vector:
    return np.asarray(np.einsum("...i,...i->...", a, b))


@dataclass(frozen=True, eq=False)
class StageContext:
    """The arguments of all stages; `period_s` is the time between two commands."""

    embodiment: Embodiment
    limits: SafetyLimits
    period_s: float

    @cached_property
    def arm_of_joint(self) -> NDArray[np.int64]:
        """(J,) number of the arm of each joint."""
        arms = self.embodiment.arms
        return np.array([arms.index(joint.arm) for joint in self.embodiment.joints])

    @cached_property
    def clearance(self) -> Clearance:
        """Distances of the arms from each other and from their surroundings."""
        return Clearance.of(self.embodiment, self.limits)

    @cached_property
    def link_points(self) -> list[LinkPoints]:
        """The points of each arm whose speed is limited."""
        return self.clearance.link_points

    @cached_property
    def point_speeds(self) -> PointSpeeds:
        """The lengths that these points travel."""
        fastest = self.limits.cartesian_speed or np.inf
        return PointSpeeds(self.link_points, fastest * self.period_s)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The obstacles of the arms."""
        return Surroundings(
            self.embodiment, self.limits, self.clearance, self.link_points, self.arm_of_joint
        )

    @cached_property
    def braking_paths(self) -> BrakingPaths:
        """The measured paths of the cycle."""
        return BrakingPaths(self.surroundings)


class Stage(Protocol):
    """One safety rule."""

    def __init__(self, context: StageContext) -> None: ...

    def start(self) -> None:
        """Resets the state of the stage at the beginning of an episode."""
        ...

    def act(self, cycle: Cycle) -> None:
        """Applies the rule."""
        ...


class StatelessStage:
    """A stage without state between cycles."""

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self.limits = context.limits
        self.period_s = context.period_s

    def start(self) -> None:
        """Has no state to reset."""
