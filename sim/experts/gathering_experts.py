"""Experts that put all objects from both sides of the table into a container in the middle.

Both arms work at the same time (in plain demonstrations in turn), each by a script of its own, and
share their state: which object each arm has taken, and which arm works in the middle. All fruits go
into the bowl, all snack boxes into the storage bin.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA, ARMS, FINGER_CLOSED, FINGER_OPEN
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.motion import (
    FORWARDS,
    UP,
    Grasp,
    Motion,
    Move,
    backed,
    downwards,
    gripper_pose,
    raised,
)
from stringline.sim.experts.skills import OPENING, SETTLING, ScriptedExpert, Skills
from stringline.sim.props.prop import Prop
from stringline.sim.props.table_props import SnackBox
from stringline.sim.tasks.gathering_tasks import FruitBowl, GatheringTask, Solid, StorageBin

# Difference between an object's width and the commanded gap: the drive pushes with 20 N.
SQUEEZE_M = 0.02
GAP_M = 2 * (FINGER_OPEN - FINGER_CLOSED)


@dataclass(frozen=True)
class Drop:
    """A place to release an object.

    Attributes:
        spot: (2,), position of the object's origin in the base frame, metres.
        rotation: (3, 3), rotation of the gripper in the base frame.
        bottom: Height of the object's lowest point above the table, metres.
        opening: Opening that releases the object.
    """

    spot: Vector
    rotation: Matrix
    bottom: float
    opening: float = 1.0

    def gripper(self, item: Solid, T_gripper_item: Matrix, bottom: float) -> Matrix:
        """Returns the gripper's pose (4, 4) with the object, at `T_gripper_item`, over the spot.

        `bottom` is the height of the object's lowest point in the base frame, metres.
        """
        upwards = self.rotation[2] @ T_gripper_item[:3, :3]  # The base's z in the object's frame.
        depth = float((item.points @ upwards - item.radii).min())
        origin = np.array([*self.spot, bottom - depth])
        return pose(origin - self.rotation @ T_gripper_item[:3, 3], self.rotation)


def closed_on(thickness: float) -> float:
    """Returns the commanded opening that holds an object of a thickness in metres."""
    return max(0.0, (thickness - SQUEEZE_M) / GAP_M)


PATIENCE = 0.1  # Seconds between two checks of an arm that waits.


def together(
    embodiment: Embodiment, start: Vector, scripts: Mapping[str, Iterator[Vector]]
) -> Iterator[Vector]:
    """Yields joint targets (J,) that follow the script of each arm.

    A script controls the joints of its arm, which rest after its end. Arms without a script stay at
    `start` (J,).
    """
    q = start.copy()
    running = dict(scripts)
    while True:
        for arm in list(running):
            targets = next(running[arm], None)
            if targets is None:
                del running[arm]
            else:
                own = [*embodiment.revolute_joints[arm], embodiment.grippers[arm]]
                q[own] = targets[own]
        if not running:
            return
        yield q.copy()


@dataclass
class Teamwork:
    """The shared state of the arms in one episode.

    Attributes:
        middle: The arm that works in the middle of the table; the other one waits.
        taken: Name of each arm's current object.
        tries: Number of attempts by the object's name.
        refused: Pairs of an arm and an object out of its reach.
        reserved: Place of each arm's next drop, (2,) in metres.
        settled: Arms that have been in their usual joints; from others less may be in reach.
    """

    middle: str | None = None
    taken: dict[str, str] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    refused: set[tuple[str, str]] = field(default_factory=set)
    reserved: dict[str, Vector] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)

    def leave(self, arm: str) -> None:
        """Ends an arm's work on its object, and frees the middle if the arm has it."""
        self.taken.pop(arm, None)
        self.reserved.pop(arm, None)
        if self.middle == arm:
            self.middle = None


@dataclass(frozen=True)
class Member:
    """One arm of the team; its skills ignore the joints of the other arm."""

    arm: str
    skills: Skills
    team: Teamwork

    @property
    def avoided(self) -> list[Vector]:
        """Places (2,), metres, that the other arm has reserved."""
        return [spot for other, spot in self.team.reserved.items() if other != self.arm]

    def enter_middle(self) -> Iterator[Vector]:
        """Waits until the middle is free, and takes it."""
        while self.team.middle not in (None, self.arm):
            yield from self.skills.motion.hold(PATIENCE)
        self.team.middle = self.arm


TaskT = TypeVar("TaskT", bound=GatheringTask)
ATTEMPTS = 4  # Per object.
ROUNDS = 3  # An object lost on the other arm's side belongs to that arm in the next round.
OVER_RIM_M = 0.03
MIDDLE_M = 0.2  # Objects nearer to the middle are taken by one arm at a time.
FINGER_M = 0.023  # Thickness of a finger.
# A gripper that leans more towards its own shoulder has its wrist in the other arm's way.
BACKWARDS = -0.1
DIP_M = 0.02  # Depth by which a gripper may come down on its way over the container.
# Pose in which an arm makes room for the other: distance from the middle, height above the table.
BESIDE_M = (0.26, 0.25)
SIGNS = {"left": -1.0, "right": 1.0}


class GatheringExpert(ScriptedExpert[TaskT]):
    """Each arm serves its side. Both work at the same time; only one of them is over the container.

    Objects that are not in place are taken again. The next object, its grasp and its drop are drawn
    among those in reach. An expert whose motions do not vary works with one arm after the other,
    and takes the object next that is nearest to the arm.
    """

    paces = (0.8, 2.0)

    @abstractmethod
    def grasps(self, task: TaskT, item: Solid, T_base_item: Matrix) -> Sequence[Grasp]:
        """Returns the grasps of an object as it lies."""

    @abstractmethod
    def drops(self, task: TaskT, item: Solid, rotation: Matrix, member: Member) -> Sequence[Drop]:
        """Returns places to release an object that the other arm has not reserved, the best first.

        The object is held, or lies before it is grasped; `rotation` (3, 3) is that of the gripper
        in the grasp.
        """

    @abstractmethod
    def rim(self, task: TaskT) -> float:
        """Returns the height of the container, metres."""

    def keeps(self, task: TaskT, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether it is an object, and no other arm holds it."""
        holders = [each for each in ARMS if skills.scene.holds(each, prop)]
        return holders == [arm] and any(prop is item.prop for item in task.objects)

    def script(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (14,).

        Raises:
            OutOfReachError: An object is out of reach of both arms.
        """
        scene = skills.scene
        team = Teamwork(settled=set(ARMS) if task.starts_at_home else set())
        targets = skills.motion.q.copy()
        hz = scene.env.contract.control_hz
        motions = {arm: Motion(ALOHA, self._kinematics, hz, start=targets) for arm in ARMS}
        members = [Member(arm, skills.with_motion(motion), team) for arm, motion in motions.items()]
        # Which arm acts next would depend on the pace of both; in one way they act in turn.
        teams = [members] if skills.varied else [[member] for member in members]
        for _ in range(ROUNDS):
            for active in teams:
                scripts = {member.arm: self._serve(task, member) for member in active}
                for moved in together(ALOHA, targets, scripts):
                    targets = moved
                    yield targets
            if task.reached(scene.env.physics):
                return
        lost = [name for name in task.props if all((arm, name) in team.refused for arm in ARMS)]
        if lost:
            raise OutOfReachError(f"Neither arm can put {', '.join(lost)} into the container.")

    def _serve(self, task: TaskT, member: Member) -> Iterator[Vector]:
        """Puts the objects on an arm's side into the container."""
        arm = member.arm
        team = member.team
        held = (item for item in task.objects if member.skills.scene.holds(arm, item.prop))
        if (item := next(held, None)) is not None:
            team.taken[arm] = item.prop.name
            with suppress(OutOfReachError):
                yield from self._bring(task, item, member)
            yield from self._make_room(task, member)
            team.leave(arm)
        while (item := self._next(task, member)) is not None:
            team.taken[arm] = item.prop.name
            member.skills.attempt(team.tries[item.prop.name])
            team.tries[item.prop.name] += 1
            with suppress(OutOfReachError):  # It slipped away, and may be in reach again.
                yield from self._fetch(task, item, member)
            yield from self._make_room(task, member)
            team.leave(arm)

    def _fetch(self, task: TaskT, item: Solid, member: Member) -> Iterator[Vector]:
        """Takes an object and puts it into the container."""
        if abs(member.skills.scene.pose(item.prop)[0, 3]) < MIDDLE_M:
            yield from member.enter_middle()
        yield from self._take(task, item, member)
        if member.skills.scene.holds(member.arm, item.prop):
            yield from member.enter_middle()
            yield from self._put(task, item, member)

    def _bring(self, task: TaskT, item: Solid, member: Member) -> Iterator[Vector]:
        """Puts an object that an arm holds since before the script into the container."""
        T = member.skills.scene.pose(item.prop)
        lowest = float((item.points @ T[2, :3] + T[2, 3] - item.radii).min()) - task.table_height
        yield from member.enter_middle()
        if lowest < self._clearance(task):
            yield from member.skills.rise(member.arm, self._clearance(task) - lowest, seconds=0.8)
        yield from self._put(task, item, member)

    def _next(self, task: TaskT, member: Member) -> Solid | None:
        """Draws the next object: on the arm's side, or one that the other arm cannot take."""
        scene = member.skills.scene
        team = member.team
        mine = list[Solid]()
        for item in task.objects:
            name = item.prop.name
            left, right = ARMS
            own, other = (left, right) if scene.pose(item.prop)[0, 3] < 0 else (right, left)
            server = own if (own, name) not in team.refused else other
            waiting = name not in team.taken.values() and team.tries[name] < ATTEMPTS
            possible = server == member.arm and (server, name) not in team.refused
            if waiting and possible and not task.inside(scene.env.physics, item):
                mine.append(item)
        foot = scene.foot(member.arm)

        def distance(item: Solid) -> float:
            return float(np.linalg.norm(scene.pose(item.prop)[:3, 3] - foot))

        return member.skills.one_of(mine, distance) if mine else None

    def _take(self, task: TaskT, item: Solid, member: Member) -> Iterator[Vector]:
        grasp = self._grasp(task, item, member)
        if grasp is None and member.arm not in member.team.settled:
            yield from self._make_room(task, member)
            grasp = self._grasp(task, item, member)
        if grasp is None:
            member.team.refused.add((member.arm, item.prop.name))
            return
        lift = self._clearance(task)
        yield from member.skills.pick(member.arm, item.prop, [grasp], lift=lift, attempts=1)

    def _grasp(self, task: TaskT, item: Solid, member: Member) -> Grasp | None:
        """Draws a grasp with a reachable drop, and reserves the drop's place."""
        arm = member.arm
        skills = member.skills
        T_base_item = member.skills.scene.pose(item.prop)
        grasps = self.grasps(task, item, T_base_item)
        drawn = skills.ordered_grasps(arm, T_base_item, grasps)

        def blocked(grasp: Grasp) -> bool:
            at = T_base_item @ grasp.T_prop_gripper
            return not _free(task, item, skills, at, grasp.opening)

        # Grasps whose fingers come down on another object are the last resort.
        drawn.sort(key=blocked)
        for grasp in drawn:
            at = T_base_item @ grasp.T_prop_gripper
            way = (backed(at, grasp.hover), at, raised(at, self._clearance(task)))
            if not _backwards(arm, at) and skills.in_reach(arm, *way):
                drop = self._drop(task, item, at, member, way)
                if drop is not None:
                    member.team.reserved[arm] = drop.spot
                    return grasp
        return None

    def _drop(
        self,
        task: TaskT,
        item: Solid,
        T_base_gripper: Matrix,
        member: Member,
        way: Sequence[Matrix] = (),
    ) -> Drop | None:
        """Returns the first drop in reach after the poses `way`, for the object as it is held."""
        held = inverse(T_base_gripper) @ member.skills.scene.pose(item.prop)
        for drop in self.drops(task, item, T_base_gripper[:3, :3], member):
            heights = (self._clearance(task), drop.bottom)
            over, at = (drop.gripper(item, held, task.table_height + height) for height in heights)
            if not _backwards(member.arm, at) and self._passable(member, (*way, over, at)):
                return drop
        return None

    def _passable(self, member: Member, poses: Sequence[Matrix]) -> bool:
        """Returns whether an arm can go through poses and does not dip before the last but one.

        That way leads over the container. It is straight in joint space; where joints turn far, the
        gripper may come down to the table in between.
        """
        found = member.skills.joints_along(member.arm, *poses)
        if found is None:
            return False
        start, over, _ = [member.skills.motion.q, *found][-3:]
        way = [start + share * (over - start) for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
        heights = [ALOHA.forward_kinematics(q)[member.arm][2, 3] for q in way]
        return bool(min(heights) > min(heights[0], heights[-1]) - DIP_M)

    def _put(self, task: TaskT, item: Solid, member: Member) -> Iterator[Vector]:
        """Releases the held object in the container; puts it back if no drop is in reach."""
        arm = member.arm
        skills = member.skills
        clearance = self._clearance(task)
        drop = self._drop(task, item, skills.scene.gripper(arm), member)
        if drop is None:
            yield from skills.rise(arm, -clearance, seconds=0.8)
            yield from skills.grip(arm, 1.0, OPENING)
            return
        over, into = (
            _following(task, item, member, drop, height) for height in (clearance, drop.bottom)
        )
        yield from skills.go(1.1, {arm: Move(over)})
        if not skills.scene.holds(arm, item.prop):
            return
        yield from skills.go(0.6, {arm: Move(into, straight=True)})
        yield from skills.wait(SETTLING)
        yield from skills.grip(arm, drop.opening, OPENING)
        yield from skills.rise(arm, clearance - drop.bottom, seconds=0.5)

    def _make_room(self, task: TaskT, member: Member) -> Iterator[Vector]:
        """Moves an arm out of the other's way, its gripper leaning towards the middle.

        The joints there are always the same: from the joints after some drops little is in reach.
        """
        arm = member.arm
        member.team.settled.add(arm)
        motion = member.skills.motion
        sign = SIGNS[arm]
        lean = np.radians(40.0)
        spot = (sign * BESIDE_M[0], 0.0, BESIDE_M[1] + task.table_height / 2)
        beside = gripper_pose(spot, (-sign * np.sin(lean), 0.0, -np.cos(lean)), (0.0, -sign, 0.0))
        goal = self._kinematics.solve({arm: beside}, ALOHA.home)
        yield from motion.turn(0.6 * member.skills.pace, {arm: goal})

    def _clearance(self, task: TaskT) -> float:
        return self.rim(task) + OVER_RIM_M


def _following(
    task: GatheringTask, item: Solid, member: Member, drop: Drop, height: float
) -> Callable[[], Matrix]:
    """Returns a target of the gripper with the object, as it is held, over the drop."""
    scene = member.skills.scene
    arm = member.arm
    held = scene.in_gripper(arm, item.prop)

    def target() -> Matrix:
        nonlocal held
        if scene.holds(arm, item.prop):
            held = scene.in_gripper(arm, item.prop)
        return drop.gripper(item, held, task.table_height + height)

    return target


def _free(
    task: GatheringTask, item: Solid, skills: Skills, T_base_gripper: Matrix, opening: float
) -> bool:
    """Returns whether the fingers come down beside all other objects."""
    away = opening * GAP_M / 2 + FINGER_M / 2
    fingers = T_base_gripper[:3, 3] + np.array([[away], [-away]]) * T_base_gripper[:3, 1]
    for other in task.objects:
        if other is not item:
            T = skills.scene.pose(other.prop)
            points = other.points @ T[:3, :3].T + T[:3, 3]
            between = np.linalg.norm(fingers[:, None] - points, axis=-1)
            if (between - other.radii < FINGER_M).any():
                return False
    return True


def _backwards(arm: str, T_base_gripper: Matrix) -> bool:
    return bool(-SIGNS[arm] * T_base_gripper[0, 0] < BACKWARDS)


FRUIT_LEANS_DEG = (-25.0, 0.0, 25.0)
BANANA_ALONG = (-0.02, 0.0, 0.02)  # Grasped points of the axis, metres from its middle.
# Height of the pads' middle above the banana's axis, so that their tips keep off the table.
BANANA_SHORT_M = 0.006
PEAR_ALONG = 0.004  # Grasped point of the axis.
# Drawn drops in the bowl: turns of the gripper, and spots around the bowl's middle for each turn.
BOWL_TURNS_DEG = (0.0, 45.0, -45.0, 90.0, -90.0, 150.0)
BOWL_SPOTS = 5
BOWL_RADIUS_M = 0.05
MOST_DROPS = 12
FRUIT_ROOM_M = 0.05  # Distance of the middles of two fruits that lie side by side.
EMPTY_BOTTOM_M = 0.02  # Height above the table of a release into the empty bowl,
FILLED_BOTTOM_M = 0.05  # and above what is in it.

BOX_LEANS_DEG = (-20.0, 0.0, 20.0)
BOX_ALONG = (-0.3, 0.0, 0.3)  # Grasped points, as shares of half the box's length.
THICKEST_M = 0.053
DEEPEST_M = 0.022  # Largest depth of the pads' middle below the top of a box,
TIP_M = 0.02  # and its smallest height above the table.
# A short way down is a slow one; on a fast one the wrist lags by more than the pads have room.
BOX_HOVER_M = 0.055
SLOTS_M = (-0.09, 0.0, 0.09)  # Slots along the bin.
SLOT_SPACING_M = 0.075
SHIFTS_M = (0.0, -0.012, 0.012)  # Across the bin, where its middle is out of reach.
BOX_BOTTOM_M = 0.013  # Height of a release above the table; the bin's floor is 5 mm thick.
# By which the gripper opens wider than the box, so that the fingers have room in the bin.
BOX_PLAY_M = 0.008


class FruitBowlExpert(GatheringExpert[FruitBowl]):
    """Takes fruits from above across their axis, the apple from all sides, and lays them down."""

    task_class = FruitBowl

    def rim(self, task: FruitBowl) -> float:
        """Returns the height of the bowl, metres."""
        return task.bowl.height

    def grasps(self, task: FruitBowl, item: Solid, T_base_item: Matrix) -> Sequence[Grasp]:
        """Returns the grasps of a fruit."""
        found = []
        closed = closed_on(2 * float(item.radii[0]))
        for point, across in self._places(task, item, T_base_item):
            for lean in FRUIT_LEANS_DEG:
                at = downwards(point, across, lean)
                found.append(Grasp(inverse(T_base_item) @ at, closed))
        return found

    def drops(
        self, task: FruitBowl, item: Solid, rotation: Matrix, member: Member
    ) -> Sequence[Drop]:
        """Returns the drawn spots and turns in the bowl with the most room."""
        scene = member.skills.scene
        middle = scene.pose(task.bowl)[:2, 3]
        others = self._others(task, item, member)
        bottom = FILLED_BOTTOM_M if others else EMPTY_BOTTOM_M
        others += [spot[None] for spot in member.avoided]
        lying = _from_above(item, scene.pose(item.prop)) - scene.pose(item.prop)[:2, 3]
        found = []
        for turn in np.radians(BOWL_TURNS_DEG):
            turned = rotation_about(UP, turn)
            turns, areas = member.skills.unit(2, BOWL_SPOTS)
            angle = (2 * turns - 1) * np.pi
            radius = BOWL_RADIUS_M * np.sqrt(areas)
            around = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
            for spot in middle + around:
                points = spot + lying @ turned[:2, :2].T
                gaps = [np.linalg.norm(points[:, None] - other, axis=-1).min() for other in others]
                room = float(min(gaps, default=1.0))
                farthest = float(np.linalg.norm(points - middle, axis=-1).max())
                beyond = max(farthest - task.bowl.floor_radius, 0.0)
                drop = Drop(spot, turned @ rotation, bottom)
                found.append((min(room, FRUIT_ROOM_M) - 2 * beyond, drop))
        found.sort(key=lambda one: -one[0])
        return [drop for _, drop in found[:MOST_DROPS]]

    def _others(self, task: FruitBowl, item: Solid, member: Member) -> list[Matrix]:
        """Returns the points (N, 2) of each other fruit in the bowl, metres."""
        scene = member.skills.scene
        middle = scene.pose(task.bowl)[:2, 3]
        others = [other for other in task.objects if other is not item]
        points = [_from_above(other, scene.pose(other.prop)) for other in others]
        radius = task.bowl.rim_radius
        return [found for found in points if np.hypot(*(found.mean(axis=0) - middle)) < radius]

    def _places(
        self, task: FruitBowl, item: Solid, T_base_item: Matrix
    ) -> Iterator[tuple[Vector, Vector]]:
        """Yields middles between the pads (3,) and level directions (3,) in which they close."""
        axes: list[tuple[Vector, Vector]]
        banana = task.banana
        if item.prop is banana:
            axes = [
                (banana.axis_point(np.array(along)), banana.axis_direction(along))
                for along in BANANA_ALONG
            ]
        elif item.prop is task.pear:
            axes = [(np.array([0.0, PEAR_ALONG, 0.0]), np.array([0.0, 1.0, 0.0]))]
        else:
            around = np.radians(np.arange(0, 180, 30))
            level = [np.array([np.cos(a), np.sin(a), 0.0]) for a in around]
            axes = [(np.zeros(3), T_base_item[:3, :3].T @ direction) for direction in level]
        short = BANANA_SHORT_M if item.prop is banana else 0.0
        for point, axis in axes:
            across = np.cross(UP, T_base_item[:3, :3] @ axis)
            across = across / np.linalg.norm(across) if np.linalg.norm(across) > 0.3 else FORWARDS
            at = T_base_item[:3, :3] @ point + T_base_item[:3, 3] + short * UP
            for sign in (1.0, -1.0):
                yield at, sign * across


def _from_above(item: Solid, T_base_item: Matrix) -> Matrix:
    """Returns the centres (N, 2) of an object's balls as seen from above, metres."""
    return np.asarray(item.points @ T_base_item[:2, :3].T + T_base_item[:2, 3])


class StorageBinExpert(GatheringExpert[StorageBin]):
    """Takes boxes from above by two upright faces, and stands them side by side in the bin."""

    task_class = StorageBin

    def rim(self, task: StorageBin) -> float:
        """Returns the height of the bin, metres."""
        return task.bin.height

    def grasps(self, task: StorageBin, item: Solid, T_base_item: Matrix) -> Sequence[Grasp]:
        """Returns the grasps of a box."""
        box = _box(task, item)
        turn = T_base_item[:3, :3]
        half_height = float(np.abs(turn[2]) @ box.half)
        lowest = TIP_M - half_height
        height = max(half_height - DEEPEST_M, min(0.0, lowest), lowest)
        found = []
        for axis in range(3):
            across = turn[:, axis]
            if 2 * box.half[axis] > THICKEST_M or abs(across[2]) > 0.3:
                continue
            level = np.cross(UP, across)
            reach = float((np.abs(turn.T @ level) * box.half).max())
            closed = closed_on(2 * float(box.half[axis]))
            for share in BOX_ALONG:
                at = T_base_item[:3, 3] + share * reach * level + height * UP
                for sign in (1.0, -1.0):
                    for lean in BOX_LEANS_DEG:
                        T = inverse(T_base_item) @ downwards(at, sign * across * (1, 1, 0), lean)
                        found.append(Grasp(T, closed, hover=BOX_HOVER_M))
        return found

    def drops(
        self, task: StorageBin, item: Solid, rotation: Matrix, member: Member
    ) -> Sequence[Drop]:
        """Returns drops in the free slots of the bin, with pads that close along the bin."""
        T_base_bin = member.skills.scene.pose(task.bin)
        slots = self._free_slots(task, item, T_base_bin, member)
        bin_yaw = np.arctan2(T_base_bin[1, 1], T_base_bin[0, 1])
        yaw = float(bin_yaw - np.arctan2(rotation[1, 1], rotation[0, 1]))
        # The pads are alike; the shorter turn comes first.
        yaw = (yaw + np.pi / 2) % np.pi - np.pi / 2
        half_turns = (0.0, np.copysign(np.pi, yaw))
        turns = [rotation_about(UP, yaw - half_turn) @ rotation for half_turn in half_turns]
        width = 2 * float(min(_box(task, item).half[:2]))
        opening = min(1.0, (width + BOX_PLAY_M) / GAP_M)
        return [
            Drop((T_base_bin @ (shift, slot, 0.0, 1.0))[:2], turned, BOX_BOTTOM_M, opening)
            for shift in SHIFTS_M
            for slot in slots
            for turned in turns
        ]

    def _free_slots(
        self, task: StorageBin, item: Solid, T_base_bin: Matrix, member: Member
    ) -> list[float]:
        """Returns the free slots along the bin, metres from its middle."""
        scene = member.skills.scene
        others = [scene.pose(other.prop)[:2, 3] for other in task.objects if other is not item]
        spots = [
            (spot - T_base_bin[:2, 3]) @ T_base_bin[:2, :2] for spot in (*others, *member.avoided)
        ]
        taken = [spot[1] for spot in spots if (np.abs(spot) < task.bin.inner).all()]
        slots = member.skills.ordered(SLOTS_M, abs)
        return [slot for slot in slots if all(abs(slot - y) > SLOT_SPACING_M for y in taken)]


def _box(task: StorageBin, item: Solid) -> SnackBox:
    return next(box for box in task.boxes if box is item.prop)
