"""Experts that take a long object lying, and hand it over upright: the banana and the pen.

The base class draws a plan, a grasp of each arm and the pose in which the object changes hands,
until both arms reach all poses of the plan. Experts of other tasks derive from it.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, TypeVar

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA, ARMS, ROOTS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.motion import (
    FORWARDS,
    OPEN,
    UP,
    Grasp,
    Motion,
    Move,
    backed,
    gripper_pose,
    raised,
)
from stringline.sim.experts.skills import (
    CLOSING,
    OPENING,
    SETTLING,
    Done,
    Scene,
    ScriptedExpert,
    Skills,
)
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.hand_over_tasks import HandOverBanana, HandOverPen, HandOverTask

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

    def sides(self, take: Grasp) -> tuple[Sequence[float], float]:
        """Returns `sides_deg` and the usual one for an item that the right gripper has taken so."""
        return self.sides_deg, self.usual_side_deg

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
        side_deg = skills.option(*self.sides(take))
        side = rotation_about(upwards, np.radians(side_deg))
        ahead = side @ ahead / np.linalg.norm(ahead)
        pitch_deg = skills.option(self.pitches_deg, self.usual_pitch_deg) + rng.uniform(-4, 4)
        pitch = np.radians(pitch_deg)
        forwards = np.cos(pitch) * ahead + np.sin(pitch) * upwards
        T = gripper_pose(point - SHORT * forwards, forwards, np.cross(upwards, forwards))
        return Grasp(T, self.closed, hover=rng.uniform(0.08, 0.11))


LIFT = 0.07
ABOVE_TABLE = 0.08
RETREAT = 0.09
AWAY = 0.13
# Rotations of a held item by slips that a plain expert expects.
SLIPS = [np.eye(3), *(rotation_about(axis, a) for axis in np.eye(3) for a in (-0.1, 0.1))]
ROUNDS = 6
DRAWS = 80
PASSES = 3
TAKES = 20
RELEASES = 12  # Goals that a plain expert considers for one meeting.


@dataclass(frozen=True)
class HandOverPlan:
    """One way to hand an item over.

    Attributes:
        take: Grasp of the right gripper, from above.
        T_base_meeting: (4, 4), the item where it changes hands.
        receive: Grasp of the left gripper there.
    """

    take: Grasp
    T_base_meeting: Matrix
    receive: Grasp


class HandOverExpert(HandOverGrasps[HandOverT]):
    """Hands an item from the right arm to the left one, which puts it into the container.

    Random choices: the end by which the right gripper takes the item, its distance from the middle
    and its lean along the item; where and in which direction the grippers meet; how steeply and
    from which side the left one comes; how it releases the item. An item that was lost is taken
    again, by the left arm first where the right one does not reach it.
    """

    _round = 0

    @abstractmethod
    def goal(self, task: HandOverT, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Draws a pose (4, 4) of the item in which the left gripper releases it.

        `upwards` (3,) is the item's axis towards the left gripper, in the item's frame.
        """

    def keeps(self, task: HandOverT, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether it is the item, in the left gripper after the hand-over or in the right.

        Of both, the right one lets go.
        """
        shared = all(skills.scene.holds(each, task.item) for each in ARMS)
        passed = skills.scene.holds("left", task.item) and (
            task.handed_over or (shared and task.lifted)
        )
        return prop is task.item and (passed if arm == "left" else not passed)

    def script(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Hands over until the item is in the container."""
        for number in range(ROUNDS):
            self._round = number
            skills.attempt(number)
            try:
                yield from self._once(task, skills)
            except OutOfReachError:  # The item moved in a gripper; its goal is now out of reach.
                if all(skills.scene.holds(arm, task.item) for arm in ARMS):
                    yield from skills.grip("left", OPEN, OPENING)
            if self._inside(task, skills) and not skills.scene.holds("left", task.item):
                break
            yield from skills.go_home(*ARMS)
        yield from skills.go_home(*ARMS)

    def _inside(self, task: HandOverT, skills: Skills) -> bool:
        return task.inside(skills.scene.pose(task.item), skills.scene.pose(task.container))

    def _once(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Hands over, with the item on the table or in one of the grippers at first."""
        if not skills.scene.holds("left", task.item):
            plan = self._plan_hand_over(task, skills)
            if plan is None:
                yield from self._fetch(task, skills)
                return
            if not skills.scene.holds("right", task.item):
                yield from skills.pick("right", task.item, [plan.take], lift=LIFT, attempts=1)
            if not skills.scene.holds("right", task.item) or not (
                yield from self._pass_on(task, skills, plan)
            ):
                return
        for _ in range(PASSES):
            contacts = task.contact_state(skills.scene.env.physics)
            if not contacts.by_arm("left", task.item.name):
                break
            if self._inside(task, skills):
                yield from skills.grip("left", OPEN, OPENING)
                yield from skills.back_off("left", RETREAT)
                break
            yield from self._put(skills, task.item, self._release_pose(task, skills), self.above)
        yield from skills.wait(0.6)

    def _put(self, skills: Skills, item: Prop, T_goal: Matrix, above: float) -> Done:
        release = {"above": above, "release": self.release, "retreat": RETREAT}
        return (yield from skills.place("left", item, lambda: T_goal, **release))

    def _held(self, task: HandOverT, skills: Skills, arm: str) -> Grasp:
        """Returns the measured grasp of an arm that holds the item."""
        return Grasp(inverse(skills.scene.in_gripper(arm, task.item)), self.closed)

    def _release_pose(self, task: HandOverT, skills: Skills) -> Matrix:
        """Draws a reachable goal for the item in the left gripper; else the gripper opens."""
        held = self._held(task, skills, "left")
        for number in range(DRAWS):
            # The way to the goal of the round before may have been out of reach.
            skills.attempt(self._round + number)
            T_goal = self.goal(task, skills, held, self.end(task, held))
            if self._can_release(skills, held, T_goal):
                return T_goal
        skills.motion.grip("left", OPEN)
        raise OutOfReachError(
            "The left arm cannot bring the item into the container as it holds it."
        )

    def _can_release(self, skills: Skills, held: Grasp, T_goal: Matrix, *before: Matrix) -> bool:
        """Returns whether the left arm can release the item at a goal and back off."""
        # Of goals that spread from the middle of a range, the first in reach is near the limit, and
        # a small slip takes it out of reach.
        for turn in (np.eye(3),) if skills.varied else SLIPS:
            leave = T_goal @ held.T_prop_gripper
            leave[:3, :3] = turn @ leave[:3, :3]
            way = (raised(leave, self.above), leave, backed(leave, RETREAT))
            if not skills.in_reach("left", *before, *way):
                return False
        return True

    def _pass_on(self, task: HandOverT, skills: Skills, plan: HandOverPlan) -> Done:
        scene = skills.scene
        item = task.item
        T_meeting = self._meet_at(task, skills, plan)
        T_right = T_meeting @ inverse(scene.in_gripper("right", item))
        T_left = backed(T_meeting @ plan.receive.T_prop_gripper, plan.receive.hover)
        skills.motion.grip("left", OPEN)
        yield from skills.go(1.0, {"right": Move(lambda: T_right), "left": Move(lambda: T_left)})
        come = Move(lambda: scene.pose(item) @ plan.receive.T_prop_gripper, straight=True)
        for _ in range(PASSES):
            yield from skills.wait(0.1)
            if not scene.holds("right", item):
                return False
            yield from skills.go(0.5, {"left": come})
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

    def _meet_at(self, task: HandOverT, skills: Skills, plan: HandOverPlan) -> Matrix:
        """Returns the planned meeting, or another one if the item moved in the gripper."""
        held = self._held(task, skills, "right")
        T_meeting = plan.T_base_meeting
        for number in range(DRAWS):
            skills.attempt(number)
            if self._meets(skills, held, T_meeting, plan.receive):
                break
            T_meeting = self.draw_meeting(task, skills, held)
        return T_meeting

    def _meets(
        self, skills: Skills, held: Grasp, T_meeting: Matrix, receive: Grasp, *before: Matrix
    ) -> bool:
        """Returns whether both arms reach a meeting, and the right one can back off from it."""
        at = T_meeting @ held.T_prop_gripper
        come = T_meeting @ receive.T_prop_gripper
        if not skills.in_reach("right", *before, at, backed(at, AWAY)):
            return False
        return skills.in_reach("left", backed(come, receive.hover), come)

    def _fetch(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Brings an item that the right arm does not reach closer to it, with the left arm."""
        item = task.item
        found = []
        for number in range(TAKES):
            skills.attempt(number)
            if (take := self.draw_take(task, skills, "left")) is not None:
                found.append(take)
        yield from skills.pick("left", item, found, lift=LIFT, attempts=1)
        T_there = skills.scene.pose(item)
        T_there[:2, 3] = skills.rng.uniform((0.0, -0.1), (0.05, 0.1))
        T_there[2, 3] = skills.scene.table + self.thickness(task)
        if skills.scene.holds("left", item):
            yield from self._put(skills, item, T_there, ABOVE_TABLE)

    def _plan_hand_over(self, task: HandOverT, skills: Skills) -> HandOverPlan | None:
        """Draws a reachable plan, or returns None if all draws are out of reach."""
        T_item = skills.scene.pose(task.item)
        held = self._held(task, skills, "right") if skills.scene.holds("right", task.item) else None
        for number in range(DRAWS):
            skills.attempt(number)
            take = held or self.draw_take(task, skills, "right")
            if take is None:
                continue
            at = T_item @ take.T_prop_gripper
            before = () if held else (backed(at, take.hover), at, raised(at, LIFT))
            if not skills.in_reach("right", *before):
                continue
            T_meeting = self.draw_meeting(task, skills, take)
            receive = self.draw_receive(task, skills, take)
            if not self._meets(skills, take, T_meeting, receive, *before):
                continue
            if self._some_release(task, skills, T_meeting, receive):
                return HandOverPlan(take, T_meeting, receive)
        return None

    def _some_release(
        self, task: HandOverT, skills: Skills, T_meeting: Matrix, receive: Grasp
    ) -> bool:
        """Returns whether a drawn goal is in reach after the meeting; a plain expert draws more."""
        come = T_meeting @ receive.T_prop_gripper
        for number in range(1 if skills.varied else RELEASES):
            skills.attempt(number)
            T_goal = self.goal(task, skills, receive, self.end(task, receive))
            if self._can_release(skills, receive, T_goal, backed(come, receive.hover), come):
                return True
        return False


# Metres from the banana's middle: the right gripper takes it at +, the left one at -.
GRASP_ALONG = 0.042
# The pads' middle stops that far short of the axis, metres, so that the tips keep off the table.
GRASP_SHORT = 0.006
HOMEWARDS = 0.8  # Seconds.
# Opening at which the drive pushes with about 25 N against the 36 mm between the pads.
CLOSED = 0.2
# Height of the banana's underside above the bowl at the release, metres.
BANANA_ABOVE_FLOOR = 0.008
PEN_ABOVE_FLOOR = 0.006  # Height of the pen's lower end above the holder's floor at the release.


class HandOverBananaExpert:
    """Hands the banana over in one order, at one pace; the seed draws small offsets.

    The right gripper comes straight down over one third of the banana, aligned with it and wide
    open. Both grippers meet level over the middle of the table, with the banana upright; the left
    one takes the upper third, and lays the banana low into the bowl. Targets are read from the
    world until the banana is in the gripper. From a varied start the arms go home first, since the
    way to a target need not be in reach.
    """

    def __init__(self) -> None:
        self._kinematics = InverseKinematics(ALOHA)
        self._plan: Iterator[Vector] = iter(())
        self._last = ALOHA.home.copy()

    def reset(self, env: TaskEnvironment, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` varies where the grippers meet.

        Raises:
            ValueError: The environment runs another task.
        """
        if not isinstance(env.task, HandOverBanana):
            raise ValueError(
                f"This expert does {HandOverBanana.name!r}; the environment runs {env.task.name!r}."
            )
        motion = Motion(ALOHA, self._kinematics, env.contract.control_hz, start=env.start)
        self._last = motion.q.copy()
        script = self._script(_BananaTargets(env, env.task), motion, rng)
        home = iter(()) if env.task.starts_at_home else motion.go_home(HOMEWARDS, ARMS)
        self._plan = chain(home, script)

    def act(self, env: TaskEnvironment) -> Vector:
        """Returns the next joint targets (14,); after the end of the script the last ones."""
        self._last = next(self._plan, self._last)
        return self._last

    def _script(
        self, targets: "_BananaTargets", motion: Motion, rng: np.random.Generator
    ) -> Iterator[Vector]:
        # Over a high table they meet closer to it, because the arms do not reach much higher.
        meeting = np.array([0.0, 0.0, 0.27 + 0.3 * targets.table])
        meeting = meeting + rng.uniform(-1, 1, 3) * (0.02, 0.03, 0.02)
        hover = rng.uniform(0.08, 0.11)
        back = rng.uniform(0.08, 0.11)
        T_right_meeting = _gripper(meeting - GRASP_ALONG * UP, -FORWARDS, UP)
        yield from self._pick(targets, motion, hover)
        yield from self._meet(targets, motion, T_right_meeting, back)
        yield from self._lay_down(targets, motion, T_right_meeting, hover)

    def _pick(self, targets: "_BananaTargets", motion: Motion, hover: float) -> Iterator[Vector]:
        motion.grip("right", OPEN)
        above = Move(lambda: backed(targets.from_above(), hover))
        yield from motion.go(1.1, {"right": above})
        yield from motion.go(0.5, {"right": Move(targets.from_above, straight=True)})
        yield from motion.hold(0.15)
        motion.grip("right", CLOSED)
        yield from motion.hold(CLOSING)

    def _meet(
        self, targets: "_BananaTargets", motion: Motion, T_right_meeting: Matrix, back: float
    ) -> Iterator[Vector]:
        T_left_expected = _gripper(T_right_meeting[:3, 3] + 2 * GRASP_ALONG * UP, FORWARDS, UP)
        T_lifted = targets.gripper("right")
        T_lifted[2, 3] += 0.06
        motion.grip("left", OPEN)
        yield from motion.go(0.36, {"right": Move(lambda: T_lifted, straight=True)})
        moves = {
            "right": Move(lambda: T_right_meeting),
            "left": Move(lambda: backed(T_left_expected, back)),
        }
        yield from motion.go(1.0, moves)
        yield from motion.hold(0.1)
        yield from motion.go(0.5, {"left": Move(targets.level, straight=True)})
        yield from motion.hold(0.15)
        motion.grip("left", CLOSED)
        yield from motion.hold(CLOSING)

    def _lay_down(
        self, targets: "_BananaTargets", motion: Motion, T_right_meeting: Matrix, hover: float
    ) -> Iterator[Vector]:
        motion.grip("right", OPEN)
        yield from motion.hold(0.24)
        T_down = targets.over_bowl()
        T_above = T_down.copy()
        T_above[2, 3] += hover
        away = Move(lambda: backed(T_right_meeting, 0.16), straight=True)
        yield from motion.go(1.0, {"left": Move(lambda: T_above), "right": away})
        yield from motion.go(0.5, {"left": Move(lambda: T_down, straight=True)})
        yield from motion.hold(0.15)
        motion.grip("left", OPEN)
        yield from motion.hold(0.3)
        T_home = ALOHA.forward_kinematics(ALOHA.home)["right"]
        leave = {"left": Move(lambda: T_above, straight=True), "right": Move(lambda: T_home)}
        yield from motion.go(0.6, leave)


class _BananaTargets(Scene):
    """Targets of the grippers, read from the world."""

    def __init__(self, env: TaskEnvironment, task: HandOverBanana) -> None:
        super().__init__(env, task)
        self._banana = task.banana
        self._bowl = task.bowl

    def from_above(self) -> Matrix:
        """Returns the right gripper's pose over its third: pointing down, z along the banana."""
        point, direction = self._third(GRASP_ALONG)
        return backed(_gripper(point, -UP, -direction), GRASP_SHORT)

    def level(self) -> Matrix:
        """Returns the left gripper's pose at its third, pointing away from its robot."""
        point, direction = self._third(-GRASP_ALONG)
        return backed(_gripper(point, FORWARDS, -direction), GRASP_SHORT)

    def over_bowl(self) -> Matrix:
        """Returns the left gripper's pose with the banana along x, just above the bowl's floor."""
        T_gripper_banana = self.in_gripper("left", self._banana)
        height = self._bowl.thickness + self._banana.radius + BANANA_ABOVE_FLOOR
        flat = np.stack([[0.0, -1.0, 0.0], -FORWARDS, -UP], axis=1)
        middle = self.pose(self._bowl)[:3, 3] + UP * height
        return pose(middle, flat) @ inverse(T_gripper_banana)

    def _third(self, along: float) -> tuple[Vector, Vector]:
        T_base_banana = self.pose(self._banana)
        point = self._banana.axis_point(np.array(along))
        direction = T_base_banana[:3, :3] @ self._banana.axis_direction(along)
        return T_base_banana[:3, :3] @ point + T_base_banana[:3, 3], direction


def _gripper(position: Vector, forwards: Vector, third_axis: Vector) -> Matrix:
    """Returns a gripper's pose from its position, its x axis and its approximate z axis."""
    z = third_axis - (third_axis @ forwards) * forwards
    z = z / np.linalg.norm(z)
    return pose(position, np.stack([forwards, np.cross(z, forwards), z], axis=1))


class VariedHandOverBananaExpert(HandOverExpert[HandOverBanana]):
    """Hands the banana over; either gripper takes one third of it, across its bend."""

    task_class = HandOverBanana
    right_along = (0.034, 0.05)
    left_along = (0.034, 0.05)
    above = 0.1
    closed = CLOSED
    leans_deg = (-25.0, 0.0, 25.0)
    pitches_deg = (-25.0, -10.0, 5.0)
    sides_deg = (0.0,)
    usual_pitch_deg = -10.0

    def axis(self, task: HandOverBanana, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the banana's axis and its direction."""
        return task.banana.axis_point(np.array(along)), task.banana.axis_direction(along)

    def normals(self, task: HandOverBanana) -> Sequence[Vector]:
        """Returns the directions across the banana's bend, flat or, after a fall, on edge."""
        edge = np.cross(UP, task.banana.axis_direction(0.0))
        return [UP, -UP, edge, -edge]

    def sides(self, take: Grasp) -> tuple[Sequence[float], float]:
        """Returns the side across the bend, from which the left gripper can lay the banana down."""
        on_edge = abs(take.T_prop_gripper[2, 0]) < 0.5
        return ((-90.0, 90.0), 90.0) if on_edge else super().sides(take)

    def thickness(self, task: HandOverBanana) -> float:
        """Returns the banana's radius."""
        return task.banana.radius

    def goal(self, task: HandOverBanana, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns a pose of the banana, flat just above the bowl, below the left gripper."""
        height = task.bowl.thickness + task.banana.radius + BANANA_ABOVE_FLOOR
        spot = skills.scene.pose(task.bowl)[:3, 3] + UP * height
        turn = rotation_about(UP, skills.rng.uniform(-np.pi, np.pi))
        if receive.T_prop_gripper[2, 0] > 0:  # The gripper would come from below.
            turn = turn @ np.diag([1.0, -1.0, -1.0])
        centre = task.banana.points[:, :2].mean(axis=0)
        return pose(spot - turn @ np.array([*centre, 0.0]), turn)


class HandOverPenExpert(HandOverExpert[HandOverPen]):
    """Hands the pen over; both grippers take it close to its middle, by its flats."""

    task_class = HandOverPen
    right_along = (0.022, 0.034)
    left_along = (0.032, 0.046)
    above = 0.14
    closed = 0.0
    leans_deg = (-14.0, 0.0, 14.0)
    pitches_deg = (-30.0, -15.0, 0.0)
    sides_deg = (-60.0, 0.0, 60.0)
    usual_pitch_deg = 0.0

    def axis(self, task: HandOverPen, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the pen's axis and its direction."""
        return np.array([0.0, along, 0.0]), np.array([0.0, 1.0, 0.0])

    def normals(self, task: HandOverPen) -> Sequence[Vector]:
        """Returns the normals of the pen's six flats."""
        return [rotation_about((0.0, 1.0, 0.0), angle) @ UP for angle in np.arange(6) * np.pi / 3]

    def thickness(self, task: HandOverPen) -> float:
        """Returns half the pen's width across the flats."""
        return task.pen.radius

    def goal(self, task: HandOverPen, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns a pose of the pen, upright in the holder, the left gripper pointing outwards."""
        height = task.holder.thickness + task.pen.length / 2 + PEN_ABOVE_FLOOR
        spot = skills.scene.pose(task.holder)[:3, 3] + UP * height
        away = spot[:2] - ROOTS["left"][:2, 3]
        yaw = np.arctan2(away[1], away[0]) + skills.rng.uniform(-0.6, 0.6)
        ahead = receive.T_prop_gripper[:3, 0] - (receive.T_prop_gripper[:3, 0] @ upwards) * upwards
        ahead = ahead / np.linalg.norm(ahead)
        heading = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        item = np.stack([ahead, np.cross(upwards, ahead), upwards], axis=1)
        return pose(spot, np.stack([heading, np.cross(UP, heading), UP], axis=1) @ item.T)
