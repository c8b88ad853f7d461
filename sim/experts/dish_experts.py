"""Experts that put a bowl, a glass or a plate into the rack.

For the plate the left arm comes in low, one finger below the plate's rim and one above, pads along
the rim's slope. It lifts the plate, turns it on edge in front of the rack, brings it over a slot,
lowers it between the tines and releases it.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar, TypeVar

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import (
    Matrix,
    between,
    inverse,
    pose,
    rotation_about,
)
from stringline.sim.experts.motion import UP, Grasp, Move, backed, raised, rim_grasps
from stringline.sim.experts.skills import CLOSING, OPENING, SETTLING, ScriptedExpert, Skills
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.dish_tasks import BowlOnRack, DishTask, GlassOnRack, PlateOnRack

TaskT = TypeVar("TaskT", bound=DishTask)
Shift = tuple[float, float, float]
ATTEMPTS = 6
LIFT_M = 0.1  # Enough for the foot of an oblique dish to pass above the wall.
ABOVE_M = 0.075  # Height above its goal from which a dish comes down.
DROP_M = 0.004  # Height above the rack's floor, or the table, at the release.
RETREAT_M = 0.08
ROOM_M = 0.03  # Gap between rim and wall or tines, for a finger and the error of the grip.
TURNS_DEG = range(-90, 91, 30)  # Turns of the round dish on its way, for reachability.
SPOTS = 6
# Balls that cover the gripper: x, y, z in its frame and radius, metres. Fingers at an opening of
# 0.7; palm, camera and wrist.
FINGERS = np.array(
    [(x, y * side, 0.0, 0.004) for x, y in ((0.011, 0.025), (-0.009, 0.04)) for side in (-1, 1)]
)
HAND = np.array(
    [
        (-0.11, -0.045, 0.003, 0.04),
        (-0.11, 0.045, 0.003, 0.04),
        (-0.11, 0.0, 0.033, 0.03),
        (-0.11, 0.0, 0.093, 0.03),
        (-0.17, 0.0, 0.003, 0.035),
        (-0.2, 0.0, 0.003, 0.042),
    ]
)
WHOLE = np.concatenate([FINGERS, HAND])
SPARE_M = 0.01  # Smallest gap between gripper and rack.
# Cost of a grasp's distance from the operator, rad/m, beside the turn of the gripper. Of the grasps
# at both sides of a round dish, which need the same turn, a plain expert takes that in front.
FRONT = 3.0


class OnRackExpert(ScriptedExpert[TaskT]):
    """Takes the dish by its rim with one arm, and puts it onto the rack.

    Grasp and goal are drawn among those in reach. A dropped dish is taken again.

    Attributes:
        arm: The arm on the side of the dish's place.
        released: Opening that releases the dish.
        seconds: Durations of the three parts of the way into the rack.
    """

    arm: ClassVar[str]
    released: ClassVar[float] = 1.0
    seconds: ClassVar[tuple[float, float, float]]

    @abstractmethod
    def grasps(self, task: TaskT) -> Sequence[Grasp]:
        """Returns the grasps of the dish."""

    @abstractmethod
    def goals(self, task: TaskT, skills: Skills, T_gripper_dish: Matrix) -> Iterator[Matrix]:
        """Draws poses `T_rack_dish` (4, 4) of the dish in its place."""

    @abstractmethod
    def way_in(self, task: TaskT, T_rack_dish: Matrix) -> list[Shift]:
        """Returns shifts of the dish from its goal: in front of the rack, above the goal, at it."""

    def keeps(self, task: TaskT, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether the arm of the place holds the dish."""
        return arm == self.arm and prop is task.dish

    def script(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (14,) until the dish is in place.

        Raises:
            OutOfReachError: The last attempt met a target out of reach.
        """
        for number in range(ATTEMPTS):
            skills.attempt(number)
            try:
                yield from self._try(task, skills)
            except OutOfReachError:  # Now another grasp or goal may be in reach.
                if number == ATTEMPTS - 1:
                    raise
            if task.on_rack(inverse(skills.scene.pose(task.rack)) @ skills.scene.pose(task.dish)):
                return

    def take(self, task: TaskT, skills: Skills, grasp: Grasp) -> Iterator[Vector]:
        """Grasps and lifts the dish."""
        yield from skills.pick(self.arm, task.dish, [grasp], lift=LIFT_M, attempts=1)

    def put(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Brings the held dish to a goal."""
        yield from self.put_at(task, skills, self.held_goal(task, skills))

    def held_goal(self, task: TaskT, skills: Skills) -> Matrix | None:
        """Draws a pose `T_rack_dish` in reach for the dish as it is held, or None."""
        return self._goal(task, skills, skills.scene.in_gripper(self.arm, task.dish), taken=())

    def put_at(self, task: TaskT, skills: Skills, T_rack_dish: Matrix | None) -> Iterator[Vector]:
        """Brings the held dish to `T_rack_dish`, on straight lines: no link dips into the rack.

        Without a goal the dish is set back onto the table, to be taken in another way.
        """
        if T_rack_dish is None:
            lowest = task.lowest(skills.scene.pose(task.dish))
            yield from skills.rise(self.arm, skills.scene.table + DROP_M - lowest)
        else:
            for shift, seconds in zip(self.way_in(task, T_rack_dish), self.seconds, strict=True):
                goal = partial(_in_rack, task, skills, T_rack_dish, shift)
                yield from skills.carry(self.arm, task.dish, goal, seconds=seconds, straight=True)
                if not skills.scene.holds(self.arm, task.dish):
                    return
        yield from skills.wait(SETTLING)
        yield from skills.grip(self.arm, self.released, OPENING)
        yield from skills.back_off(self.arm, RETREAT_M)

    def _try(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        if not skills.scene.holds(self.arm, task.dish):
            yield from self.take(task, skills, self._grasp(task, skills))
        if skills.scene.holds(self.arm, task.dish):
            yield from self.put(task, skills)

    def _grasp(self, task: TaskT, skills: Skills) -> Grasp:
        """Draws a grasp from which some goal is in reach."""
        T_base_dish = skills.scene.pose(task.dish)
        T_rack_base = inverse(skills.scene.pose(task.rack))
        grasps = self.grasps(task)

        def behind(T_base_gripper: Matrix) -> float:
            return FRONT * float(T_base_gripper[1, 3])

        for grasp in skills.ordered_grasps(self.arm, T_base_dish, grasps, behind):
            at = T_base_dish @ grasp.T_prop_gripper
            way = (backed(at, grasp.hover), at, raised(at, LIFT_M))
            beside = all(clear_of_rack(task, T_rack_base @ T, WHOLE) for T in way[:2])
            if not beside or not skills.in_reach(self.arm, *way):
                continue
            if self._goal(task, skills, inverse(grasp.T_prop_gripper), way) is not None:
                return grasp
        raise OutOfReachError(
            f"None of {len(grasps)} grasps lets the {self.arm} arm put {task.dish.name} onto the "
            "rack."
        )

    def _goal(
        self, task: TaskT, skills: Skills, T_gripper_dish: Matrix, taken: Sequence[Matrix]
    ) -> Matrix | None:
        """Draws a pose `T_rack_dish` (4, 4), in reach after the way `taken`, or None."""
        T_rack_base = inverse(skills.scene.pose(task.rack))
        start = taken[-1] if taken else skills.scene.gripper(self.arm)
        for T_rack_dish in self.goals(task, skills, T_gripper_dish):
            ways = [
                _in_rack(task, skills, T_rack_dish, shift) @ inverse(T_gripper_dish)
                for shift in self.way_in(task, T_rack_dish)
            ]
            ways.append(backed(ways[-1], RETREAT_M))
            if not all(clear_of_rack(task, T_rack_base @ T, HAND) for T in ways):
                continue
            # The joints are computed both for the ends of the lines and along them.
            lines = along(start, *ways)
            if skills.in_reach(self.arm, *taken, *ways) and skills.in_reach(
                self.arm, *taken, *lines
            ):
                return T_rack_dish
        return None


def clear_of_rack(task: DishTask, T_rack_gripper: Matrix, parts: Matrix) -> bool:
    """Returns whether parts (N, 4) of a gripper, as `HAND`, are beside or above the rack."""
    points = parts[:, :3] @ T_rack_gripper[:3, :3].T + T_rack_gripper[:3, 3]
    radii = parts[:, 3]
    over = (np.abs(points[:, :2]) < task.rack.half + radii[:, None]).all(axis=1)
    top = np.where(points[:, 1] < task.rack.bay[0, 1], task.rack.height, task.rack.wall)
    return not bool((over & (points[:, 2] < top + radii + SPARE_M)).any())


def _in_rack(task: DishTask, skills: Skills, T_rack_dish: Matrix, shift: Shift) -> Matrix:
    """Returns `T_base_dish` of a dish, shifted from `T_rack_dish` along the rack's axes, metres."""
    return np.asarray(skills.scene.pose(task.rack) @ pose(shift) @ T_rack_dish)


def along(*poses: Matrix) -> list[Matrix]:
    """Returns poses (4, 4) in steps of an eighth along the lines between successive poses."""
    shares = np.linspace(0.125, 1.0, 8)
    return [between(start, goal, share) for start, goal in pairwise(poses) for share in shares]


class StandInBayExpert(OnRackExpert[TaskT]):
    """Stands a round dish in the free bay; spot and turn are drawn."""

    paces = (0.9, 2.1)
    arm = "right"  # The bay is on its side.
    seconds = (0.9, 0.9, 0.6)

    def goals(self, task: TaskT, skills: Skills, T_gripper_dish: Matrix) -> Iterator[Matrix]:
        """Draws poses of the dish in the bay, each spot with several turns."""
        room = _rim(task) + ROOM_M
        low, high = task.rack.bay
        facing = inverse(skills.scene.pose(task.rack)) @ skills.scene.pose(task.dish)
        yaw = float(np.arctan2(facing[1, 0], facing[0, 0]))
        for number in range(SPOTS):
            skills.attempt(number)
            spot = (*skills.rng.uniform(low + room, high - room), task.rack.floor + DROP_M)
            for turn in skills.ordered(TURNS_DEG, abs):
                yield pose(spot, rotation_about(UP, yaw + np.radians(turn)))

    def way_in(self, task: TaskT, T_rack_dish: Matrix) -> list[Shift]:
        """Returns shifts of the dish from its goal: in front of the rack, above the goal, at it."""
        back = float(task.rack.half[0]) + _rim(task) + ROOM_M - float(T_rack_dish[0, 3])
        return [(back, 0.0, ABOVE_M), (0.0, 0.0, ABOVE_M), (0.0, 0.0, 0.0)]


def _rim(task: DishTask) -> float:
    return float(np.hypot(task.rim_points[:, 0], task.rim_points[:, 1]).max())


class BowlOnRackExpert(StandInBayExpert[BowlOnRack]):
    """Pinches the bowl's slanted wall along its slope, from any side in reach."""

    task_class = BowlOnRack

    def grasps(self, task: BowlOnRack) -> Sequence[Grasp]:
        """Returns the grasps of the bowl by its rim."""
        radius = task.bowl.rim_radius + 1.5 * task.bowl.thickness
        return rim_grasps(
            radius,
            task.bowl.height,
            azimuths_deg=range(-180, 180, 30),
            pitches_deg=(60, 66, 72),
            depth=0.002,
        )


class GlassOnRackExpert(StandInBayExpert[GlassOnRack]):
    """Pinches the glass's wall at the rim, steeply, from any side in reach."""

    task_class = GlassOnRack

    def grasps(self, task: GlassOnRack) -> Sequence[Grasp]:
        """Returns the grasps of the glass by its rim."""
        radius = (task.glass.diameter - task.glass.thickness) / 2
        return rim_grasps(
            radius,
            task.glass.height,
            azimuths_deg=range(-180, 180, 30),
            pitches_deg=(70, 78, 86),
            depth=0.004,
        )


OPENED = 0.4  # A gap of 23 mm; with a wider one the lower finger would touch the table.
ABOVE_RIM_M = 0.003  # Height of the gripper above the rim's middle, for the same reason.
SHORT_M = 0.002  # Distance at which it stops short of the rim.
HOVER_M = 0.05
PLATE_DROP_M = 0.003
OVER_TINES_M = 0.02
IN_FRONT_M = 0.12
# Positions of the grip on the plate on edge: 0 at its front, 90 at its top.
ELEVATIONS_DEG = range(0, 76, 15)


@dataclass(frozen=True)
class Slot:
    """One way to stand the plate, in the rack's frame.

    Attributes:
        y: Position of the slot's middle, metres.
        x: Position of the plate's middle, metres.
        facing: 1 if the plate's upper face looks along y, -1 for the opposite.
        elevation: Position of the grip on the plate, rad; 0 at its front, pi/2 at its top.
    """

    y: float
    x: float
    facing: float
    elevation: float


class PlateOnRackExpert(OnRackExpert[PlateOnRack]):
    """Takes the plate from any side; slot, facing and grip are drawn among those in reach."""

    task_class = PlateOnRack
    paces = (0.9, 2.0)
    arm = "left"  # The slots are on its side.
    released = OPENED
    seconds = (1.4, 0.7, 0.8)
    clear_m = 0.12  # Out of a slot.

    def grasps(self, task: PlateOnRack) -> Sequence[Grasp]:
        """Returns the grasps of the plate by its slanted rim."""
        plate = task.plate
        slope = np.arctan2(plate.height - plate.thickness, plate.diameter / 2 - plate.floor_radius)
        radius = plate.diameter / 2 + plate.thickness / 2 * np.sin(slope)
        height = plate.height - plate.thickness / 2 * np.cos(slope)
        return rim_grasps(
            radius,
            height + ABOVE_RIM_M,
            azimuths_deg=range(-180, 180, 15),
            pitches_deg=(np.degrees(slope) + 2.0,),
            depth=-SHORT_M,
            opening=OPENED,
            hover=HOVER_M,
        )

    def goals(self, task: PlateOnRack, skills: Skills, T_gripper_dish: Matrix) -> Iterator[Matrix]:
        """Draws poses of the plate in the slots."""
        radial = -inverse(T_gripper_dish)[:3, 0] * (1, 1, 0)
        slots = [
            Slot(y, skills.rng.uniform(-0.02, 0.02), facing, np.radians(elevation))
            for y in task.rack.slots
            for facing in (-1.0, 1.0)
            for elevation in ELEVATIONS_DEG
        ]
        T_base_rack = skills.scene.pose(task.rack)
        T_dish_gripper = inverse(T_gripper_dish)

        def goal(slot: Slot) -> Matrix:
            return standing(task, slot, radial / np.linalg.norm(radial))

        def turn(slot: Slot) -> float:
            return skills.turn(self.arm, T_base_rack @ goal(slot) @ T_dish_gripper)

        yield from map(goal, skills.ordered(slots, turn))

    def way_in(self, task: PlateOnRack, T_rack_dish: Matrix) -> list[Shift]:
        """Returns shifts of the plate: in front of the rack, above the slot, in it."""
        above = task.rack.height - task.rack.floor + OVER_TINES_M
        return [(IN_FRONT_M, 0.0, above), (0.0, 0.0, above), (0.0, 0.0, 0.0)]

    def take(self, task: PlateOnRack, skills: Skills, grasp: Grasp) -> Iterator[Vector]:
        """Grasps the rim and lifts the plate.

        The drives' error is measured on the way and corrected, as only 3 mm are free.
        """
        at = skills.scene.pose(task.dish) @ grasp.T_prop_gripper
        skills.motion.grip(self.arm, OPENED)
        yield from skills.go(1.0, {self.arm: Move(lambda: backed(at, HOVER_M))})
        yield from skills.wait(2 * SETTLING)
        aim = pose(backed(at, HOVER_M)[:3, 3] - skills.scene.gripper(self.arm)[:3, 3]) @ at
        yield from skills.go(0.6, {self.arm: Move(lambda: aim, straight=True)})
        yield from skills.wait(SETTLING)
        yield from skills.grip(self.arm, grasp.closed, CLOSING)
        yield from skills.rise(self.arm, LIFT_M)

    def put(self, task: PlateOnRack, skills: Skills) -> Iterator[Vector]:
        """Turns the held plate on edge, lowers it into a slot and releases it."""
        T_rack_plate = self.held_goal(task, skills)
        home = ALOHA.forward_kinematics(ALOHA.home)[self.arm]
        if T_rack_plate is None and skills.in_reach(self.arm, home):
            # From where a stretched arm got stuck no way may lead to slots that are in reach.
            yield from skills.go_home(self.arm)
            T_rack_plate = self.held_goal(task, skills)
        yield from self.put_at(task, skills, T_rack_plate)


def standing(task: PlateOnRack, slot: Slot, radial: Vector) -> Matrix:
    """Returns the pose `T_rack_plate` (4, 4) of the plate on edge, just above the rack's floor.

    `radial` (3,) is the unit vector from the plate's middle to the grip, in the plate's frame.
    """
    grip = np.array([np.cos(slot.elevation), 0.0, np.sin(slot.elevation)])
    face = np.array([0.0, slot.facing, 0.0])
    wanted = np.stack([grip, np.cross(face, grip), face], axis=1)
    given = np.stack([radial, np.cross(UP, radial), UP], axis=1)
    radius = float(np.hypot(*task.rim_points[0, :2]))
    # The origin is in the plane of the plate's foot; the middle of its thickness goes into the
    # middle of the slot.
    y = slot.y - slot.facing * task.plate.height / 2
    middle = np.array([slot.x, y, task.rack.floor + radius + PLATE_DROP_M])
    return pose(middle, wanted @ given.T)
