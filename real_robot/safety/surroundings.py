"""Obstacles of the arms, the room around them, and how hinges change it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.link_points import LinkPoints
from stringline.real_robot.safety.measured import (
    KINDS,
    OBSTACLE,
    OTHER_ARM,
    SAME_ARM,
    Contacts,
    Measured,
    cross,
)
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_cycle import Cycle

Vector = NDArray[np.float64]
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
    """S obstacles around C capsules of each of A arms with J joints and H hinges in total.

    Attributes:
        hinges: (H,) indices of the hinges in the joint vector, of one arm after the other.
        arm_of_hinge: (H,) number of the arm of each hinge.
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
        self.hinges = np.concatenate([body.hinges[arm] for arm in body.arms])
        self.arm_of_hinge = arm_of_joint[self.hinges]
        self._same_arm = self.arm_of_hinge[:, None] == self.arm_of_hinge
        grippers = np.cumsum([len(points.places) for points in link_points]) - 1
        self._gripper = grippers[self.arm_of_hinge]

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
        """Returns how the hinges change the gaps, (K, H), metres per radian."""
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
        """Returns the cost (H, H) of joint changes, m^2/rad^2, with each hinge at its pose (H,)."""
        hinge = np.arange(len(self.hinges))
        axes = measured.axes[poses, hinge]
        levers = measured.points[poses, self._gripper] - measured.anchors[poses, hinge]
        moved = np.concatenate([cross(axes, levers), _TURN_M * axes], axis=1)
        return np.asarray(moved @ moved.T * self._same_arm + _JOINT_M**2 * np.eye(len(hinge)))
