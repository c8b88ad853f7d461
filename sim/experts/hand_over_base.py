"""What experts that hand a long thing over have in common: it is taken lying and handed over upright, in many ways."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.grasps import OPEN, UP, Grasp, backed, gripper_pose, raised
from stringline.sim.experts.motion import Move
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import CLOSING, OPENING, SETTLING, Done, Skills
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.hand_over_tasks import HandOverTask

HandOverT = TypeVar("HandOverT", bound=HandOverTask)

OFF_TABLE = 0.003  # Between pads and table.
SHORT = 0.004  # The pads' middle stays that far short of the axis.
LIFT = 0.07
ABOVE_TABLE = 0.08
RETREAT = 0.09
AWAY = 0.13
ROUNDS = 6
DRAWS = 80
PASSES = 3
PACES = (
    0.75,
    1.6,
)  # Wider than others: the arms' limits already stretch the long moves of the faster episodes.


@dataclass(frozen=True)
class HandOver:
    """One way to hand an item over.

    Attributes:
        take: By the right gripper, from above.
        T_base_meeting: (4, 4), the item where it changes hands.
        receive: By the left gripper, there.
    """

    take: Grasp
    T_base_meeting: Matrix
    receive: Grasp


class HandOverExpert(ScriptedExpert[HandOverT]):
    """Takes an item with the right arm, hands it to the left one over the middle of the table, and puts it into the container.

    What varies: the end by which the right gripper takes it and how far from the middle, how it
    leans along the item, where the grippers meet and in which direction, how steeply and from which
    side the left one comes, and how it lets go. What was lost is taken again, by the left arm first
    where the right one does not reach.

    Attributes:
        right_along: The right gripper's distance from the item's middle, smallest and largest,
            metres.
        left_along: The left one's, on the other side.
        above: From how far above its goal the item comes down, metres.
        closed: Opening that holds the item.
        leans_deg: Of the right gripper along the item.
        pitches_deg: Of the left one, above level.
        sides_deg: From where around the upright item the left one comes; 0 is opposite the right
            one.
        meeting_height: Of the middle of the item when it changes hands, metres.
        release: The opening that lets the item go into the container.
        pad_ahead: How far the pads reach beyond the gripper's origin, metres.
        pad_half_width: Half of their width, metres.
    """

    right_along: ClassVar[tuple[float, float]]
    left_along: ClassVar[tuple[float, float]]
    above: ClassVar[float]
    closed: ClassVar[float]
    leans_deg: ClassVar[Sequence[float]]
    pitches_deg: ClassVar[Sequence[float]]
    sides_deg: ClassVar[Sequence[float]]
    meeting_height: ClassVar[float] = 0.27
    release: ClassVar[float] = OPEN
    pad_ahead: ClassVar[float] = 0.0154
    pad_half_width: ClassVar[float] = 0.0125

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    @abstractmethod
    def axis(self, task: HandOverT, along: float) -> tuple[Vector, Vector]:
        """Returns a point (3,) of the item's axis and the unit tangent there, in its frame, metres from its middle."""

    @abstractmethod
    def normals(self, task: HandOverT) -> Sequence[Vector]:
        """Returns directions (3,) in the item's frame, across its axis, from which pads get hold of it where it lies."""

    @abstractmethod
    def thickness(self, task: HandOverT) -> float:
        """Returns how high the item's axis is above what it lies on, metres."""

    @abstractmethod
    def goal(self, task: HandOverT, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Draws a pose (4, 4) in which the left gripper lets the item go; `upwards` is the axis from right to left hand."""

    def script(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Hands over until the item is in the container."""
        for _ in range(ROUNDS):
            try:
                yield from self._once(task, skills)
            except (
                OutOfReachError
            ):  # It moved in a gripper, and no longer gets where it was planned to go.
                if all(skills.scene.holds(arm, task.item) for arm in ARMS):
                    yield from skills.grip("left", OPEN, OPENING)
            if task.inside(skills.scene.pose(task.item), skills.scene.pose(task.container)):
                break
            yield from skills.go_home(*ARMS)
        yield from skills.go_home(*ARMS)

    def _once(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Hands over, from whichever state things are in: on the table, or in one of the grippers."""
        if not skills.scene.holds("left", task.item):
            way = self._way(task, skills)
            if way is None:
                yield from self._fetch(task, skills)
                return
            if not skills.scene.holds("right", task.item):
                yield from skills.pick("right", task.item, [way.take], lift=LIFT, attempts=1)
            if not skills.scene.holds("right", task.item) or not (
                yield from self._pass_on(task, skills, way)
            ):
                return
        for _ in range(PASSES):
            if not task.touching(skills.scene.env.physics).by_arm("left", task.item.name):
                break
            if task.inside(skills.scene.pose(task.item), skills.scene.pose(task.container)):
                yield from skills.grip("left", OPEN, OPENING)
                yield from skills.back_off("left", RETREAT)
                break
            yield from self._put(skills, task.item, self._let_go_at(task, skills), self.above)
        yield from skills.wait(0.6)

    def _put(self, skills: Skills, item: Prop, T_goal: Matrix, above: float) -> Done:
        return (
            yield from skills.place(
                "left", item, lambda: T_goal, above=above, release=self.release, retreat=RETREAT
            )
        )

    def _held(self, task: HandOverT, skills: Skills, arm: str) -> Grasp:
        """Returns how an arm holds the item, as it is measured."""
        return Grasp(inverse(skills.scene.in_gripper(arm, task.item)), self.closed)

    def _end(self, task: HandOverT, grasp: Grasp) -> Vector:
        """Returns the item's axis (3,) in its frame, towards the part that is held."""
        middle, direction = self.axis(task, 0.0)
        return direction * np.sign(direction @ (grasp.T_prop_gripper[:3, 3] - middle))

    def _let_go_at(self, task: HandOverT, skills: Skills) -> Matrix:
        """Draws a goal that is in reach for the item as the left gripper holds it.

        Raises:
            OutOfReachError: None was found; then the gripper opens.
        """
        held = self._held(task, skills, "left")
        for _ in range(DRAWS):
            T_goal = self.goal(task, skills, held, self._end(task, held))
            if self._leaves(skills, held, T_goal):
                return T_goal
        skills.motion.grip("left", OPEN)
        raise OutOfReachError(
            "The left arm does not get the item into the container as it holds it."
        )

    def _leaves(self, skills: Skills, held: Grasp, T_goal: Matrix, *before: Matrix) -> bool:
        """Says whether the left arm can let go of what it holds at a goal, and get away."""
        leave = T_goal @ held.T_prop_gripper
        return skills.in_reach(
            "left", *before, raised(leave, self.above), leave, backed(leave, RETREAT)
        )

    def _pass_on(self, task: HandOverT, skills: Skills, way: HandOver) -> Done:
        scene = skills.scene
        item = task.item
        T_meeting = self._meet_at(task, skills, way)
        T_right = T_meeting @ inverse(scene.in_gripper("right", item))
        T_left = backed(T_meeting @ way.receive.T_prop_gripper, way.receive.hover)
        skills.motion.grip("left", OPEN)
        yield from skills.go(1.0, {"right": Move(lambda: T_right), "left": Move(lambda: T_left)})
        for _ in range(PASSES):
            yield from skills.wait(0.1)
            if not scene.holds("right", item):
                return False
            yield from skills.go(
                0.5,
                {
                    "left": Move(
                        lambda: scene.pose(item) @ way.receive.T_prop_gripper, straight=True
                    )
                },
            )
            yield from skills.wait(SETTLING)
            yield from skills.grip("left", self.closed, CLOSING)
            if scene.holds("left", item):
                break
            yield from skills.grip("left", OPEN, OPENING)
            yield from skills.back_off("left")
        yield from skills.grip("right", OPEN, OPENING)
        if skills.in_reach("right", backed(scene.gripper("right"), AWAY)):
            yield from skills.back_off("right", AWAY)
        else:
            yield from skills.go_home("right")
        return scene.holds("left", item)

    def _meet_at(self, task: HandOverT, skills: Skills, way: HandOver) -> Matrix:
        """Returns the planned meeting, or where the item moved in the gripper another one that is in reach now."""
        held = self._held(task, skills, "right")
        T_meeting = way.T_base_meeting
        for _ in range(DRAWS):
            if self._meets(skills, held, T_meeting, way.receive):
                break
            T_meeting = self._meeting(task, skills, held)
        return T_meeting

    def _meets(
        self, skills: Skills, held: Grasp, T_meeting: Matrix, receive: Grasp, *before: Matrix
    ) -> bool:
        """Says whether the right arm can bring what it holds to a meeting and get away, and the left one can come."""
        at = T_meeting @ held.T_prop_gripper
        come = T_meeting @ receive.T_prop_gripper
        if not skills.in_reach("right", *before, at, backed(at, AWAY)):
            return False
        return skills.in_reach("left", backed(come, receive.hover), come)

    def _fetch(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Has the left arm bring an item that the right one does not reach closer to it.

        Raises:
            OutOfReachError: The left arm does not reach it either.
        """
        item = task.item
        takes = [self._take(task, skills, "left") for _ in range(20)]
        yield from skills.pick(
            "left", item, [take for take in takes if take is not None], lift=LIFT, attempts=1
        )
        T_there = skills.scene.pose(item)
        T_there[:2, 3] = skills.rng.uniform((0.0, -0.1), (0.05, 0.1))
        T_there[2, 3] = skills.scene.table + self.thickness(task)
        if skills.scene.holds("left", item):
            yield from self._put(skills, item, T_there, ABOVE_TABLE)

    def _way(self, task: HandOverT, skills: Skills) -> HandOver | None:
        """Returns a way to hand the item over, drawn from those in reach; None if none was found."""
        T_item = skills.scene.pose(task.item)
        held = self._held(task, skills, "right") if skills.scene.holds("right", task.item) else None
        for _ in range(DRAWS):
            take = held or self._take(task, skills, "right")
            if take is None:
                continue
            at = T_item @ take.T_prop_gripper
            before = () if held else (backed(at, take.hover), at, raised(at, LIFT))
            if skills.in_reach("right", *before) and (
                way := self._onwards(task, skills, take, *before)
            ):
                return way
        return None

    def _onwards(
        self, task: HandOverT, skills: Skills, take: Grasp, *before: Matrix
    ) -> HandOver | None:
        """Draws how it goes on from a grasp of the right gripper, after poses that it goes through; None if out of reach."""
        T_meeting = self._meeting(task, skills, take)
        receive = self._receive(task, skills, take)
        if not self._meets(skills, take, T_meeting, receive, *before):
            return None
        come = T_meeting @ receive.T_prop_gripper
        T_goal = self.goal(task, skills, receive, self._end(task, receive))
        fits = self._leaves(skills, receive, T_goal, backed(come, receive.hover), come)
        return HandOver(take, T_meeting, receive) if fits else None

    def _take(self, task: HandOverT, skills: Skills, arm: str) -> Grasp | None:
        """Draws a grasp of either part: from above, or level where the item stands; None if the gripper would point back."""
        rng = skills.rng
        T_item = skills.scene.pose(task.item)
        sign = rng.choice((-1, 1))
        point, direction = self.axis(task, sign * rng.uniform(*self.right_along))
        outwards = (T_item[:3, :3] @ point + T_item[:3, 3] - skills.scene.foot(arm)) * (
            1.0,
            1.0,
            0.0,
        )
        outwards /= np.linalg.norm(outwards)
        stands = abs((T_item[:3, :3] @ direction)[2]) > 0.7
        best = outwards if stands else -UP
        normal = min(self.normals(task), key=lambda normal: float(T_item[:3, :3] @ normal @ best))
        lean = np.radians(0.0 if stands else rng.choice(self.leans_deg) + rng.uniform(-4, 4))
        forwards = np.sin(lean) * direction - np.cos(lean) * normal
        drop = (
            self.pad_ahead * np.cos(lean)
            + self.pad_half_width * abs(np.sin(lean))
            + OFF_TABLE
            - self.thickness(task)
        )
        short = SHORT if stands else max(SHORT, drop / np.cos(lean))
        # Its back is up, and its camera with it, when it holds the item upright with that part
        # below.
        T = gripper_pose(point - short * forwards, forwards, np.cross(-sign * direction, forwards))
        pointing = T_item[:3, :3] @ forwards
        fits = pointing @ best > 0.7 and pointing @ outwards > -0.45
        return Grasp(T, self.closed, hover=rng.uniform(0.07, 0.1)) if fits else None

    def _meeting(self, task: HandOverT, skills: Skills, take: Grasp) -> Matrix:
        """Draws where the item is upright in the right gripper, which points to the left."""
        rng = skills.rng
        heading = rotation_about(UP, rng.uniform(-0.4, 0.4)) @ np.array([-1.0, 0.0, 0.0])
        middle = self.axis(task, 0.0)[0]
        upwards = -self._end(task, take)
        ahead = take.T_prop_gripper[:3, 0]
        ahead = ahead - (ahead @ upwards) * upwards
        item = np.stack(
            [
                ahead / np.linalg.norm(ahead),
                np.cross(upwards, ahead / np.linalg.norm(ahead)),
                upwards,
            ],
            axis=1,
        )
        world = np.stack([heading, np.cross(UP, heading), UP], axis=1)
        # Over a high table they meet closer to it, because the arms do not reach much higher.
        spot = np.array([0.0, 0.0, self.meeting_height + 0.3 * skills.scene.table]) + rng.uniform(
            -1, 1, 3
        ) * (0.03, 0.05, 0.03)
        turn = world @ item.T
        return pose(spot - turn @ middle, turn)

    def _receive(self, task: HandOverT, skills: Skills, take: Grasp) -> Grasp:
        """Draws how the left gripper takes the upper part of the upright item."""
        rng = skills.rng
        sign = -float(np.sign(self._end(task, take) @ self.axis(task, 0.0)[1]))
        point, direction = self.axis(task, sign * rng.uniform(*self.left_along))
        upwards = sign * direction
        ahead = -take.T_prop_gripper[:3, 0]
        ahead = ahead - (ahead @ upwards) * upwards
        ahead = (
            rotation_about(upwards, np.radians(rng.choice(self.sides_deg)))
            @ ahead
            / np.linalg.norm(ahead)
        )
        pitch = np.radians(rng.choice(self.pitches_deg) + rng.uniform(-4, 4))
        forwards = np.cos(pitch) * ahead + np.sin(pitch) * upwards
        T = gripper_pose(point - SHORT * forwards, forwards, np.cross(upwards, forwards))
        return Grasp(T, self.closed, hover=rng.uniform(0.08, 0.11))
