"""Experts that put a bowl or a glass into the rack, and what they share with the plate's expert."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.grasps import UP, Grasp, backed, raised, rim_grasps
from stringline.sim.experts.motion import between
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import OPENING, SETTLING, Skills
from stringline.sim.tasks.dish_tasks import BowlOnRack, DishTask, GlassOnRack

TaskT = TypeVar("TaskT", bound=DishTask)
ARM = "right"  # The bay is on its side.
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


class StandInBayExpert(ScriptedExpert[TaskT]):
    """Takes the dish by its rim with the right arm, and stands it in the bay.

    Grasp, spot in the bay and turn are drawn among those in reach. A dropped dish is taken again.
    """

    paces = (0.9, 2.1)

    @abstractmethod
    def grasps(self, task: TaskT) -> Sequence[Grasp]:
        """Returns the grasps of the dish."""

    def script(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (14,)."""
        yield from until_on_rack(task, skills, partial(self._try, task, skills))

    def _try(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        if not skills.scene.holds(ARM, task.dish):
            grasp = self._grasp(task, skills)
            yield from skills.pick(ARM, task.dish, [grasp], lift=LIFT_M, attempts=1)
        if skills.scene.holds(ARM, task.dish):
            yield from _stand_down(task, skills)

    def _grasp(self, task: TaskT, skills: Skills) -> Grasp:
        """Draws a grasp from which some spot in the bay is in reach."""
        T_base_dish = skills.scene.pose(task.dish)
        grasps = self.grasps(task)
        for index in skills.rng.permutation(len(grasps)):
            grasp = grasps[int(index)]
            at = T_base_dish @ grasp.T_prop_gripper
            way = (backed(at, grasp.hover), at, raised(at, LIFT_M))
            T_gripper_dish = inverse(grasp.T_prop_gripper)
            if not all(
                clear_of_rack(task, inverse(skills.scene.pose(task.rack)) @ T, WHOLE)
                for T in way[:2]
            ):
                continue
            if (
                skills.in_reach(ARM, *way)
                and _spot(task, skills, T_gripper_dish, taken=way) is not None
            ):
                return grasp
        raise OutOfReachError(
            f"None of {len(grasps)} grasps lets the {ARM} arm put {task.dish.name} onto the rack."
        )


def until_on_rack(
    task: DishTask, skills: Skills, attempt: Callable[[], Iterator[Vector]]
) -> Iterator[Vector]:
    """Repeats attempts until the dish is in place.

    An attempt that meets a target out of reach is not the end: after it, another grasp or spot may
    be in reach.

    Raises:
        OutOfReachError: The last attempt met a target out of reach.
    """
    for number in range(ATTEMPTS):
        try:
            yield from attempt()
        except OutOfReachError:
            if number == ATTEMPTS - 1:
                raise
        if task.on_rack(inverse(skills.scene.pose(task.rack)) @ skills.scene.pose(task.dish)):
            return


def clear_of_rack(task: DishTask, T_rack_gripper: Matrix, parts: Matrix) -> bool:
    """Returns whether parts of a gripper keep off the rack, beside it or above its wall and tines.

    Args:
        task: The task, for its rack.
        T_rack_gripper: (4, 4), pose of the gripper.
        parts: (N, 4), balls as in `HAND`.
    """
    points = parts[:, :3] @ T_rack_gripper[:3, :3].T + T_rack_gripper[:3, 3]
    radii = parts[:, 3]
    over = (np.abs(points[:, :2]) < task.rack.half + radii[:, None]).all(axis=1)
    top = np.where(points[:, 1] < task.rack.bay[0, 1], task.rack.height, task.rack.wall)
    return not bool((over & (points[:, 2] < top + radii + SPARE_M)).any())


def _stand_down(task: DishTask, skills: Skills) -> Iterator[Vector]:
    """Brings the held dish over the bay, lowers and releases it.

    It moves on straight lines, so that no link dips into the rack. If no spot is in reach for the
    dish as it is held, it is set back onto the table, to be taken in another way.
    """
    T_rack_dish = _spot(task, skills, skills.scene.in_gripper(ARM, task.dish), taken=())
    if T_rack_dish is None:
        yield from set_back(ARM, task, skills)
        return
    for shift, seconds in zip(_way_in(task, T_rack_dish), (0.9, 0.9, 0.6), strict=True):
        goal = partial(in_rack, task, skills, T_rack_dish, shift)
        yield from skills.carry(ARM, task.dish, goal, seconds=seconds, straight=True)
        if not skills.scene.holds(ARM, task.dish):
            return
    yield from let_go(ARM, skills)


def set_back(arm: str, task: DishTask, skills: Skills, opening: float = 1.0) -> Iterator[Vector]:
    """Lowers the dish that an arm holds until it is just above the table, and releases it."""
    yield from skills.rise(
        arm, skills.scene.table + DROP_M - task.lowest(skills.scene.pose(task.dish))
    )
    yield from let_go(arm, skills, opening)


def let_go(arm: str, skills: Skills, opening: float = 1.0) -> Iterator[Vector]:
    """Opens a gripper, once it is at rest, and backs off."""
    yield from skills.wait(SETTLING)
    yield from skills.grip(arm, opening, OPENING)
    yield from skills.back_off(arm, RETREAT_M)


def _spot(
    task: DishTask, skills: Skills, T_gripper_dish: Matrix, taken: Sequence[Matrix]
) -> Matrix | None:
    """Draws a pose `T_rack_dish` (4, 4) in the bay, in reach after the way `taken`, or None."""
    room = _rim(task) + ROOM_M
    low, high = task.rack.bay
    T_rack_base = inverse(skills.scene.pose(task.rack))
    facing = T_rack_base @ skills.scene.pose(task.dish)
    yaw = float(np.arctan2(facing[1, 0], facing[0, 0]))
    for _ in range(SPOTS):
        spot = (*skills.rng.uniform(low + room, high - room), task.rack.floor + DROP_M)
        for turn in skills.rng.permutation(TURNS_DEG):
            T_rack_dish = pose(spot, rotation_about(UP, yaw + np.radians(turn)))
            ways = [
                in_rack(task, skills, T_rack_dish, shift) @ inverse(T_gripper_dish)
                for shift in _way_in(task, T_rack_dish)
            ]
            ways.append(backed(ways[-1], RETREAT_M))
            if not all(clear_of_rack(task, T_rack_base @ T, HAND) for T in ways):
                continue
            start = taken[-1] if taken else skills.scene.gripper(ARM)
            # The joints are computed both for the ends of the lines and along them.
            lines = along(start, *ways)
            if skills.in_reach(ARM, *taken, *ways) and skills.in_reach(ARM, *taken, *lines):
                return T_rack_dish
    return None


def _way_in(task: DishTask, T_rack_dish: Matrix) -> list[tuple[float, float, float]]:
    """Returns shifts of the dish from its goal: in front of the rack, above the goal, at it."""
    back = float(task.rack.half[0]) + _rim(task) + ROOM_M - float(T_rack_dish[0, 3])
    return [(back, 0.0, ABOVE_M), (0.0, 0.0, ABOVE_M), (0.0, 0.0, 0.0)]


def _rim(task: DishTask) -> float:
    return float(np.hypot(task.rim_points[:, 0], task.rim_points[:, 1]).max())


def in_rack(
    task: DishTask, skills: Skills, T_rack_dish: Matrix, shift: tuple[float, float, float]
) -> Matrix:
    """Returns `T_base_dish` of a dish, shifted from `T_rack_dish` along the rack's axes, metres."""
    return np.asarray(skills.scene.pose(task.rack) @ pose(shift) @ T_rack_dish)


def along(*poses: Matrix) -> list[Matrix]:
    """Returns poses (4, 4) in steps of an eighth along the lines between successive poses."""
    shares = np.linspace(0.125, 1.0, 8)
    return [between(start, goal, share) for start, goal in pairwise(poses) for share in shares]


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
