"""Experts that put all fruits into the bowl and all snack boxes into the storage bin."""

from collections.abc import Iterator, Sequence

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, rotation_about
from stringline.sim.experts.both_arms import Member
from stringline.sim.experts.drops import GAP_M, Drop, closed_on
from stringline.sim.experts.gathering_base import GatheringExpert
from stringline.sim.experts.grasps import FORWARDS, UP, Grasp, downwards
from stringline.sim.props.handheld import SnackBox
from stringline.sim.tasks.gathering_tasks import FruitBowl, Solid, StorageBin

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
