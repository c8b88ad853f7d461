"""The grasps of experts that take a long object lying and hand it over upright."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.experts.grasps import OPEN, UP, Grasp, gripper_pose
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.tasks.hand_over_tasks import HandOverTask

HandOverT = TypeVar("HandOverT", bound=HandOverTask)

OFF_TABLE = 0.003  # Smallest gap between pads and table, metres.
SHORT = 0.004  # Smallest distance at which the pads' middle stops short of the axis, metres.


class HandOverGrasps(ScriptedExpert[HandOverT]):
    """Draws how both grippers take an item, and where they meet.

    Attributes:
        right_along: Range of the right gripper's distance from the item's middle, metres.
        left_along: Range of the left gripper's distance, on the other side of the middle, metres.
        above: Height above its goal from which the item comes down, metres.
        closed: Commanded opening that holds the item.
        leans_deg: Leans of the right gripper along the item.
        pitches_deg: Pitches of the left gripper above level.
        sides_deg: Directions around the upright item from which the left gripper comes; 0 is
            opposite the right one.
        usual_end: 1 or -1, the end by which a plain expert takes the item, along its axis.
        usual_lean_deg: Lean of its right gripper.
        usual_pitch_deg: Pitch of its left gripper.
        usual_side_deg: Direction from which its left gripper comes.
        meeting_height: Height of the item's middle when it changes hands, metres.
        release: Opening that releases the item.
        pad_ahead: Distance by which the pads reach beyond the gripper's origin, metres.
        pad_half_width: Half of the pads' width, metres.
    """

    paces = (0.75, 1.6)
    right_along: ClassVar[tuple[float, float]]
    left_along: ClassVar[tuple[float, float]]
    above: ClassVar[float]
    closed: ClassVar[float]
    leans_deg: ClassVar[Sequence[float]]
    pitches_deg: ClassVar[Sequence[float]]
    sides_deg: ClassVar[Sequence[float]]
    usual_end: ClassVar[int] = 1
    usual_lean_deg: ClassVar[float] = 0.0
    usual_pitch_deg: ClassVar[float]
    usual_side_deg: ClassVar[float] = 0.0
    meeting_height: ClassVar[float] = 0.27
    release: ClassVar[float] = OPEN
    pad_ahead: ClassVar[float] = 0.0154
    pad_half_width: ClassVar[float] = 0.0125

    @abstractmethod
    def axis(self, task: HandOverT, along: float) -> tuple[Vector, Vector]:
        """Returns a point (3,) of the item's axis and the unit tangent there, in its frame.

        `along` is the distance of the point from the item's middle, metres.
        """

    @abstractmethod
    def normals(self, task: HandOverT) -> Sequence[Vector]:
        """Returns directions (3,), across the axis, in which pads can hold the lying item."""

    @abstractmethod
    def thickness(self, task: HandOverT) -> float:
        """Returns the height of the lying item's axis above the table, metres."""

    def end(self, task: HandOverT, grasp: Grasp) -> Vector:
        """Returns the item's axis (3,) in its frame, towards the held part."""
        middle, direction = self.axis(task, 0.0)
        return direction * np.sign(direction @ (grasp.T_prop_gripper[:3, 3] - middle))

    def draw_take(self, task: HandOverT, skills: Skills, arm: str) -> Grasp | None:
        """Draws a grasp from above, or level if the item stands; None if it would point back."""
        rng = skills.rng
        T_item = skills.scene.pose(task.item)
        sign = skills.option((-1, 1), self.usual_end)
        point, direction = self.axis(task, sign * rng.uniform(*self.right_along))
        outwards = T_item[:3, :3] @ point + T_item[:3, 3] - skills.scene.foot(arm)
        outwards *= (1.0, 1.0, 0.0)
        outwards /= np.linalg.norm(outwards)
        stands = abs((T_item[:3, :3] @ direction)[2]) > 0.7
        best = outwards if stands else -UP
        normal = min(self.normals(task), key=lambda normal: float(T_item[:3, :3] @ normal @ best))
        lean_deg = 0.0
        if not stands:
            lean_deg = skills.option(self.leans_deg, self.usual_lean_deg) + rng.uniform(-4, 4)
        lean = np.radians(lean_deg)
        forwards = np.sin(lean) * direction - np.cos(lean) * normal
        ahead = self.pad_ahead * np.cos(lean) + self.pad_half_width * abs(np.sin(lean))
        drop = ahead + OFF_TABLE - self.thickness(task)
        short = SHORT if stands else max(SHORT, drop / np.cos(lean))
        # The camera on its back is up while it holds the item upright by the lower part.
        T = gripper_pose(point - short * forwards, forwards, np.cross(-sign * direction, forwards))
        pointing = T_item[:3, :3] @ forwards
        fits = pointing @ best > 0.7 and pointing @ outwards > -0.45
        return Grasp(T, self.closed, hover=rng.uniform(0.07, 0.1)) if fits else None

    def draw_meeting(self, task: HandOverT, skills: Skills, take: Grasp) -> Matrix:
        """Draws a pose of the upright item, with the right gripper pointing to the left."""
        rng = skills.rng
        heading = rotation_about(UP, rng.uniform(-0.4, 0.4)) @ np.array([-1.0, 0.0, 0.0])
        middle = self.axis(task, 0.0)[0]
        upwards = -self.end(task, take)
        ahead = take.T_prop_gripper[:3, 0]
        ahead = ahead - (ahead @ upwards) * upwards
        ahead = ahead / np.linalg.norm(ahead)
        item = np.stack([ahead, np.cross(upwards, ahead), upwards], axis=1)
        world = np.stack([heading, np.cross(UP, heading), UP], axis=1)
        # Over a high table they meet closer to it, because the arms do not reach much higher.
        spot = np.array([0.0, 0.0, self.meeting_height + 0.3 * skills.scene.table])
        spot = spot + rng.uniform(-1, 1, 3) * (0.03, 0.05, 0.03)
        turn = world @ item.T
        return pose(spot - turn @ middle, turn)

    def draw_receive(self, task: HandOverT, skills: Skills, take: Grasp) -> Grasp:
        """Draws the grasp of the left gripper at the upper part of the upright item."""
        rng = skills.rng
        sign = -float(np.sign(self.end(task, take) @ self.axis(task, 0.0)[1]))
        point, direction = self.axis(task, sign * rng.uniform(*self.left_along))
        upwards = sign * direction
        ahead = -take.T_prop_gripper[:3, 0]
        ahead = ahead - (ahead @ upwards) * upwards
        side_deg = skills.option(self.sides_deg, self.usual_side_deg)
        side = rotation_about(upwards, np.radians(side_deg))
        ahead = side @ ahead / np.linalg.norm(ahead)
        pitch_deg = skills.option(self.pitches_deg, self.usual_pitch_deg) + rng.uniform(-4, 4)
        pitch = np.radians(pitch_deg)
        forwards = np.cos(pitch) * ahead + np.sin(pitch) * upwards
        T = gripper_pose(point - SHORT * forwards, forwards, np.cross(upwards, forwards))
        return Grasp(T, self.closed, hover=rng.uniform(0.08, 0.11))
