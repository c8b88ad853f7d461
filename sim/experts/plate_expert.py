"""A scripted expert that stands the plate in a slot of the rack.

The left arm comes in low, one finger below the plate's rim and one above, pads along the rim's
slope. It lifts the plate, turns it on edge in front of the rack, brings it over a slot, lowers it
between the tines and lets go.
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
from stringline.sim.experts.grasps import UP, Grasp, backed, raised
from stringline.sim.experts.motion import Move
from stringline.sim.experts.rims import rim_grasps
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import CLOSING, SETTLING, Skills
from stringline.sim.tasks.dish_tasks import PlateOnRack

ARM = "left"  # The slots are on its side.
PACES = (0.9, 2.0)
OPENED = 0.4  # A gap of 23 mm: a wider one would put the lower finger into the table.
ABOVE_RIM_M = 0.003  # The gripper comes that much above the rim's middle, for the same reason,
SHORT_M = 0.002  # and stops that far short of it.
HOVER_M = 0.05
LIFT_M = 0.10
DROP_M = 0.003
OVER_TINES_M = 0.02
IN_FRONT_M = 0.12
ELEVATIONS_DEG = range(
    0, 76, 15
)  # Where the gripper holds the plate on edge: 0 at its front, 90 at its top.


@dataclass(frozen=True)
class Slot:
    """One way to stand the plate, in the rack's frame.

    Attributes:
        y: Of the slot's middle, metres.
        x: Of the plate's middle, metres.
        facing: 1 where its upper face looks along y, -1 where it looks the other way.
        elevation: How high on the plate the grip is, rad; 0 at its front, pi/2 at its top.
    """

    y: float
    x: float
    facing: float
    elevation: float


class PlateOnRackExpert(ScriptedExpert[PlateOnRack]):
    """Takes the plate from any side in reach; slot, facing and where the grip ends up are drawn among those in reach.

    Args:
        paces: See `ScriptedExpert`.
    """

    task_class = PlateOnRack

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

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
    """Closes the gripper on the rim; by how much the drives miss is measured on the way, for there are only 3 mm to spare."""
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
    """Draws a grasp from which some slot is in reach.

    Raises:
        OutOfReachError: There is none.
    """
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
        f"None of {len(grasps)} ways for the {ARM} arm to stand {task.dish.name} in the rack."
    )


def _choose_slot(
    task: PlateOnRack, skills: Skills, T_gripper_plate: Matrix, taken: Sequence[Matrix]
) -> Matrix | None:
    """Draws where to let go, `T_rack_plate` (4, 4), in reach after the way `taken`; None where nothing is."""
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
        if skills.in_reach(ARM, *taken, *ways) and skills.in_reach(
            ARM, *taken, *along(start, *ways)
        ):
            return T_rack_plate
    return None


def standing(task: PlateOnRack, slot: Slot, radial: Vector) -> Matrix:
    """Returns the pose `T_rack_plate` (4, 4) of the plate on edge, just above the rack's floor.

    Args:
        task: Whose plate and rack.
        slot: Where.
        radial: (3,), of the grip in the plate's frame, a unit vector.
    """
    grip = np.array([np.cos(slot.elevation), 0.0, np.sin(slot.elevation)])
    face = np.array([0.0, slot.facing, 0.0])
    wanted = np.stack([grip, np.cross(face, grip), face], axis=1)
    given = np.stack([radial, np.cross(UP, radial), UP], axis=1)
    radius = float(np.hypot(*task.rim_points[0, :2]))
    # The origin is in the plane of the plate's foot; the middle of its thickness goes into the
    # middle of the slot.
    middle = np.array(
        [slot.x, slot.y - slot.facing * task.plate.height / 2, task.rack.floor + radius + DROP_M]
    )
    return pose(middle, wanted @ given.T)


def _way_in(task: PlateOnRack) -> list[tuple[float, float, float]]:
    """Returns how far from its goal the plate is in front of the rack, above the slot, and in it."""
    above = task.rack.height - task.rack.floor + OVER_TINES_M
    return [(IN_FRONT_M, 0.0, above), (0.0, 0.0, above), (0.0, 0.0, 0.0)]


def _stand_up(task: PlateOnRack, skills: Skills) -> Iterator[Vector]:
    """Turns the plate that is held on edge, lowers it into a slot and lets go.

    Where no slot is in reach for the plate as it is held, it is set back onto the table, to be
    taken in another way.

    Raises:
        OutOfReachError: The plate slipped so far on the way that the slot is out of reach.
    """
    T_rack_plate = _choose_slot(task, skills, skills.scene.in_gripper(ARM, task.dish), taken=())
    if T_rack_plate is None and skills.in_reach(ARM, ALOHA.forward_kinematics(ALOHA.home)[ARM]):
        # From where a stretched arm got stuck every way may be closed, though slots are in reach.
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
