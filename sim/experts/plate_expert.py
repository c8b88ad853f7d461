"""The expert that stands the plate in a slot of the rack.

The left arm comes in low, one finger below the plate's rim and one above, pads along the rim's
slope. It lifts the plate, turns it on edge in front of the rack, brings it over a slot, lowers it
between the tines and releases it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.sim.experts.dish_experts import (
    HAND,
    RETREAT_M,
    WHOLE,
    along,
    clear_of_rack,
    in_rack,
    let_go,
    set_back,
    until_on_rack,
)
from stringline.sim.experts.grasps import UP, Grasp, backed, raised, rim_grasps
from stringline.sim.experts.motion import Move
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import CLOSING, SETTLING, Skills
from stringline.sim.tasks.dish_tasks import PlateOnRack

ARM = "left"  # The slots are on its side.
OPENED = 0.4  # A gap of 23 mm; with a wider one the lower finger would touch the table.
ABOVE_RIM_M = 0.003  # Height of the gripper above the rim's middle, for the same reason.
SHORT_M = 0.002  # Distance at which it stops short of the rim.
HOVER_M = 0.05
LIFT_M = 0.10
DROP_M = 0.003
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


class PlateOnRackExpert(ScriptedExpert[PlateOnRack]):
    """Takes the plate from any side; slot, facing and grip are drawn among those in reach."""

    task_class = PlateOnRack
    paces = (0.9, 2.0)

    def script(self, task: PlateOnRack, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (14,)."""
        yield from until_on_rack(task, skills, partial(_try, task, skills))


def _try(task: PlateOnRack, skills: Skills) -> Iterator[Vector]:
    if not skills.scene.holds(ARM, task.dish):
        yield from _take(task, skills, _choose_grasp(task, skills))
        yield from skills.rise(ARM, LIFT_M)
    if skills.scene.holds(ARM, task.dish):
        yield from _stand_up(task, skills)


def _take(task: PlateOnRack, skills: Skills, grasp: Grasp) -> Iterator[Vector]:
    """Grasps the rim; the drives' error is measured on the way and corrected, as 3 mm are free."""
    at = skills.scene.pose(task.dish) @ grasp.T_prop_gripper
    skills.motion.grip(ARM, OPENED)
    yield from skills.go(1.0, {ARM: Move(lambda: backed(at, HOVER_M))})
    yield from skills.wait(2 * SETTLING)
    aim = pose(backed(at, HOVER_M)[:3, 3] - skills.scene.gripper(ARM)[:3, 3]) @ at
    yield from skills.go(0.6, {ARM: Move(lambda: aim, straight=True)})
    yield from skills.wait(SETTLING)
    yield from skills.grip(ARM, grasp.closed, CLOSING)


def _grasps(task: PlateOnRack) -> list[Grasp]:
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


def _choose_grasp(task: PlateOnRack, skills: Skills) -> Grasp:
    """Draws a grasp from which some slot is in reach."""
    T_base_plate = skills.scene.pose(task.dish)
    T_base_rack = skills.scene.pose(task.rack)
    grasps = _grasps(task)
    for index in skills.rng.permutation(len(grasps)):
        grasp = grasps[int(index)]
        at = T_base_plate @ grasp.T_prop_gripper
        way = (backed(at, grasp.hover), at, raised(at, LIFT_M))
        beside = all(clear_of_rack(task, inverse(T_base_rack) @ T, WHOLE) for T in way[:2])
        if not beside or not skills.in_reach(ARM, *way):
            continue
        if _choose_slot(task, skills, inverse(grasp.T_prop_gripper), way) is not None:
            return grasp
    raise OutOfReachError(
        f"None of {len(grasps)} grasps lets the {ARM} arm stand {task.dish.name} in the rack."
    )


def _choose_slot(
    task: PlateOnRack, skills: Skills, T_gripper_plate: Matrix, taken: Sequence[Matrix]
) -> Matrix | None:
    """Draws a pose `T_rack_plate` (4, 4) in a slot, in reach after the way `taken`, or None."""
    radial = -inverse(T_gripper_plate)[:3, 0] * (1, 1, 0)
    slots = [
        Slot(y, skills.rng.uniform(-0.02, 0.02), facing, np.radians(elevation))
        for y in task.rack.slots
        for facing in (-1.0, 1.0)
        for elevation in ELEVATIONS_DEG
    ]
    T_rack_base = inverse(skills.scene.pose(task.rack))
    start = taken[-1] if taken else skills.scene.gripper(ARM)
    for index in skills.rng.permutation(len(slots)):
        T_rack_plate = standing(task, slots[int(index)], radial / np.linalg.norm(radial))
        ways = [
            in_rack(task, skills, T_rack_plate, shift) @ inverse(T_gripper_plate)
            for shift in _way_in(task)
        ]
        ways.append(backed(ways[-1], RETREAT_M))
        if not all(clear_of_rack(task, T_rack_base @ T, HAND) for T in ways):
            continue
        lines = along(start, *ways)
        if skills.in_reach(ARM, *taken, *ways) and skills.in_reach(ARM, *taken, *lines):
            return T_rack_plate
    return None


def standing(task: PlateOnRack, slot: Slot, radial: Vector) -> Matrix:
    """Returns the pose `T_rack_plate` (4, 4) of the plate on edge, just above the rack's floor.

    Args:
        task: The task, for its plate and rack.
        slot: The slot and the plate's attitude.
        radial: (3,), unit vector from the plate's middle to the grip, in the plate's frame.
    """
    grip = np.array([np.cos(slot.elevation), 0.0, np.sin(slot.elevation)])
    face = np.array([0.0, slot.facing, 0.0])
    wanted = np.stack([grip, np.cross(face, grip), face], axis=1)
    given = np.stack([radial, np.cross(UP, radial), UP], axis=1)
    radius = float(np.hypot(*task.rim_points[0, :2]))
    # The origin is in the plane of the plate's foot; the middle of its thickness goes into the
    # middle of the slot.
    y = slot.y - slot.facing * task.plate.height / 2
    middle = np.array([slot.x, y, task.rack.floor + radius + DROP_M])
    return pose(middle, wanted @ given.T)


def _way_in(task: PlateOnRack) -> list[tuple[float, float, float]]:
    """Returns shifts of the plate from its goal: in front of the rack, above the slot, in it."""
    above = task.rack.height - task.rack.floor + OVER_TINES_M
    return [(IN_FRONT_M, 0.0, above), (0.0, 0.0, above), (0.0, 0.0, 0.0)]


def _stand_up(task: PlateOnRack, skills: Skills) -> Iterator[Vector]:
    """Turns the held plate on edge, lowers it into a slot and releases it.

    If no slot is in reach for the plate as it is held, it is set back onto the table, to be taken
    in another way.
    """
    T_rack_plate = _choose_slot(task, skills, skills.scene.in_gripper(ARM, task.dish), taken=())
    if T_rack_plate is None and skills.in_reach(ARM, ALOHA.forward_kinematics(ALOHA.home)[ARM]):
        # From where a stretched arm got stuck no way may lead to slots that are in reach.
        yield from skills.go_home(ARM)
        T_rack_plate = _choose_slot(task, skills, skills.scene.in_gripper(ARM, task.dish), taken=())
    if T_rack_plate is None:
        yield from set_back(ARM, task, skills, OPENED)
    else:
        yield from _into(task, skills, T_rack_plate)


def _into(task: PlateOnRack, skills: Skills, T_rack_plate: Matrix) -> Iterator[Vector]:
    for shift, seconds in zip(_way_in(task), (1.4, 0.7, 0.8), strict=True):
        goal = partial(in_rack, task, skills, T_rack_plate, shift)
        yield from skills.carry(ARM, task.dish, goal, seconds=seconds, straight=True)
        if not skills.scene.holds(ARM, task.dish):
            return
    yield from let_go(ARM, skills, OPENED)
