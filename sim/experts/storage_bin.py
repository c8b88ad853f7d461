"""A scripted expert that puts all snack boxes into the storage bin."""

from collections.abc import Sequence

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix, inverse, rotation_about
from stringline.sim.experts.both_arms import Member
from stringline.sim.experts.drops import GAP_M, Drop, closed_on, downwards
from stringline.sim.experts.gathering import GatheringExpert
from stringline.sim.experts.grasps import UP, Grasp
from stringline.sim.props.snack_box import SnackBox
from stringline.sim.tasks.gathering_task import Solid
from stringline.sim.tasks.storage_bin import StorageBin

LEANS_DEG = (-20.0, 0.0, 20.0)
ALONG_SHARE = (-0.3, 0.0, 0.3)  # Of half its length, where a box is taken.
THICKEST_M = 0.053
DEEPEST_M = 0.022  # The middle between the pads goes at most that far below the top of a box.
HOVER_M = 0.055  # A short way down is a slow one; on a fast one the wrist lags by more than the pads have room.
TIP_M = 0.02  # And stays at least that far above the table.
SLOTS_M = (-0.09, 0.0, 0.09)  # Along the bin.
SPACING_M = 0.075
SHIFTS_M = (0.0, -0.012, 0.012)  # Across the bin, where its middle is out of reach.
BOTTOM_M = 0.013  # A box is let go that far above the table; the bin's floor is 5 mm thick.
PLAY_M = 0.008  # By which the gripper opens wider than the box is thick, so that the fingers have room in the bin.


class StorageBinExpert(GatheringExpert[StorageBin]):
    """Boxes are taken from above by two upright faces, leaning by up to 20 degrees, and stood side by side across the bin."""

    task_class = StorageBin

    def rim(self, task: StorageBin) -> float:
        """Returns the height of the bin, metres."""
        return task.bin.height

    def grasps(self, task: StorageBin, thing: Solid, T_base_thing: Matrix) -> Sequence[Grasp]:
        """Returns the ways to take a box."""
        box, turn = _box(task, thing), T_base_thing[:3, :3]
        found = []
        for axis in range(3):
            across = turn[:, axis]
            if 2 * box.half[axis] > THICKEST_M or abs(across[2]) > 0.3:
                continue
            level = np.cross(UP, across)
            reach = float((np.abs(turn.T @ level) * box.half).max())
            half_height = float(np.abs(turn[2]) @ box.half)
            height = max(half_height - DEEPEST_M, min(0.0, TIP_M - half_height), TIP_M - half_height)
            thickness = 2 * float(box.half[axis])
            for share in ALONG_SHARE:
                at = T_base_thing[:3, 3] + share * reach * level + height * UP
                for sign in (1.0, -1.0):
                    for lean in LEANS_DEG:
                        T = inverse(T_base_thing) @ downwards(at, sign * across * (1, 1, 0), lean)
                        found.append(Grasp(T, closed_on(thickness), hover=HOVER_M))
        return found

    def drops(self, task: StorageBin, thing: Solid, rotation: Matrix, member: Member) -> Sequence[Drop]:
        """Returns the free slots of the bin, the pads closing along it."""
        scene, rng = member.skills.scene, member.skills.rng
        T_base_bin = scene.pose(task.bin)
        yaw = float(np.arctan2(T_base_bin[1, 1], T_base_bin[0, 1]) - np.arctan2(rotation[1, 1], rotation[0, 1]))
        others = [scene.pose(other.prop)[:2, 3] for other in task.things if other is not thing]
        there = [(spot - T_base_bin[:2, 3]) @ T_base_bin[:2, :2] for spot in (*others, *member.avoided)]
        taken = [spot[1] for spot in there if (np.abs(spot) < task.bin.inner).all()]
        slots = [slot for slot in rng.permutation(SLOTS_M) if all(abs(slot - other) > SPACING_M for other in taken)]
        yaw = (yaw + np.pi / 2) % np.pi - np.pi / 2  # The pads are alike; the shorter turn comes first.
        turns = [rotation_about(UP, yaw - half_turn) @ rotation for half_turn in (0.0, np.copysign(np.pi, yaw))]
        opening = min(1.0, (2 * float(min(_box(task, thing).half[:2])) + PLAY_M) / GAP_M)
        return [
            Drop((T_base_bin @ (shift, slot, 0.0, 1.0))[:2], turned, BOTTOM_M, opening)
            for shift in SHIFTS_M
            for slot in slots
            for turned in turns
        ]


def _box(task: StorageBin, thing: Solid) -> SnackBox:
    return next(box for box in task.boxes if box is thing.prop)
