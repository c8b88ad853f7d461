"""The expert that stands the plate in a slot of the rack.

The left arm comes in low, one finger below the plate's rim and one above, pads along the rim's
slope. It lifts the plate, turns it on edge in front of the rack, brings it over a slot, lowers it
between the tines and releases it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.sim.experts.dish_experts import LIFT_M, OnRackExpert, Shift
from stringline.sim.experts.grasps import UP, Grasp, backed, rim_grasps
from stringline.sim.experts.motion import Move
from stringline.sim.experts.skills import CLOSING, SETTLING, Skills
from stringline.sim.tasks.dish_tasks import PlateOnRack

OPENED = 0.4  # A gap of 23 mm; with a wider one the lower finger would touch the table.
ABOVE_RIM_M = 0.003  # Height of the gripper above the rim's middle, for the same reason.
SHORT_M = 0.002  # Distance at which it stops short of the rim.
HOVER_M = 0.05
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


class PlateOnRackExpert(OnRackExpert[PlateOnRack]):
    """Takes the plate from any side; slot, facing and grip are drawn among those in reach."""

    task_class = PlateOnRack
    paces = (0.9, 2.0)
    arm = "left"  # The slots are on its side.
    released = OPENED
    seconds = (1.4, 0.7, 0.8)

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
    middle = np.array([slot.x, y, task.rack.floor + radius + DROP_M])
    return pose(middle, wanted @ given.T)
