"""Experts that put all fruits into the bowl and all snack boxes into the storage bin."""

from collections.abc import Iterator, Sequence

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, rotation_about
from stringline.sim.experts.both_arms import Member
from stringline.sim.experts.drops import GAP_M, Drop, closed_on, downwards
from stringline.sim.experts.gathering_base import GatheringExpert
from stringline.sim.experts.grasps import FORWARDS, UP, Grasp
from stringline.sim.props.handheld import SnackBox
from stringline.sim.tasks.gathering_tasks import FruitBowl, Solid, StorageBin

FRUIT_LEANS_DEG = (-25.0, 0.0, 25.0)
TURNS_DEG = (0.0, 45.0, -45.0, 90.0, -90.0, 150.0)
BANANA_ALONG = (-0.02, 0.0, 0.02)  # Metres from its middle.
# The middle between the pads stays that far above its axis, so that the tips keep off the table.
BANANA_SHORT_M = 0.006
PEAR_ALONG = 0.004
SPOT_RADIUS_M = 0.05
SPOTS = 5  # For each turn.
MOST_DROPS = 12
ROOM_M = 0.05  # Two fruits whose middles are that far apart lie beside each other.
BOTTOMS_M = (
    0.02,
    0.05,
)  # Let go that far above the table: in the empty bowl, and above what is in it.


class FruitBowlExpert(GatheringExpert[FruitBowl]):
    """Fruits are taken from above across their axis, leaning by up to 25 degrees, the apple from all around."""

    task_class = FruitBowl

    def rim(self, task: FruitBowl) -> float:
        """Returns the height of the bowl, metres."""
        return task.bowl.height

    def grasps(self, task: FruitBowl, thing: Solid, T_base_thing: Matrix) -> Sequence[Grasp]:
        """Returns the ways to take a fruit."""
        found = []
        for point, across in self._places(task, thing, T_base_thing):
            for lean in FRUIT_LEANS_DEG:
                at = downwards(point, across, lean)
                found.append(
                    Grasp(inverse(T_base_thing) @ at, closed_on(2 * float(thing.radii[0])))
                )
        return found

    def drops(
        self, task: FruitBowl, thing: Solid, rotation: Matrix, member: Member
    ) -> Sequence[Drop]:
        """Returns the roomiest of some spots and turns in the bowl."""
        scene = member.skills.scene
        rng = member.skills.rng
        middle = scene.pose(task.bowl)[:2, 3]
        others = [
            _across(other, scene.pose(other.prop)) for other in task.things if other is not thing
        ]
        there = [
            points
            for points in others
            if np.hypot(*(points.mean(axis=0) - middle)) < task.bowl.rim_radius
        ]
        bottom = BOTTOMS_M[1] if there else BOTTOMS_M[0]
        there += [spot[None] for spot in member.avoided]
        lying = _across(thing, scene.pose(thing.prop)) - scene.pose(thing.prop)[:2, 3]
        found = []
        for turn in np.radians(TURNS_DEG):
            turned = rotation_about(UP, turn)
            angle = rng.uniform(-np.pi, np.pi, SPOTS)
            radius = SPOT_RADIUS_M * np.sqrt(rng.uniform(0, 1, SPOTS))
            for spot in middle + np.stack(
                [radius * np.cos(angle), radius * np.sin(angle)], axis=-1
            ):
                points = spot + lying @ turned[:2, :2].T
                room = min(
                    (
                        float(np.linalg.norm(points[:, None] - other, axis=-1).min())
                        for other in there
                    ),
                    default=1.0,
                )
                beyond = (
                    float(np.linalg.norm(points - middle, axis=-1).max()) - task.bowl.floor_radius
                )
                found.append(
                    (
                        min(room, ROOM_M) - 2 * max(beyond, 0.0),
                        Drop(spot, turned @ rotation, bottom),
                    )
                )
        found.sort(key=lambda one: -one[0])
        return [drop for _, drop in found[:MOST_DROPS]]

    def _places(
        self, task: FruitBowl, thing: Solid, T_base_thing: Matrix
    ) -> Iterator[tuple[Vector, Vector]]:
        """Yields where the pads' middle goes (3,) and in which level direction (3,) they close."""
        axes: list[tuple[Vector, Vector]]
        if thing.prop is task.banana:
            axes = [
                (task.banana.axis_point(np.array(along)), task.banana.axis_direction(along))
                for along in BANANA_ALONG
            ]
        elif thing.prop is task.pear:
            axes = [(np.array([0.0, PEAR_ALONG, 0.0]), np.array([0.0, 1.0, 0.0]))]
        else:
            around = np.radians(np.arange(0, 180, 30))
            axes = [
                (np.zeros(3), T_base_thing[:3, :3].T @ np.array([np.cos(a), np.sin(a), 0.0]))
                for a in around
            ]
        short = BANANA_SHORT_M if thing.prop is task.banana else 0.0
        for point, axis in axes:
            across = np.cross(UP, T_base_thing[:3, :3] @ axis)
            across = across / np.linalg.norm(across) if np.linalg.norm(across) > 0.3 else FORWARDS
            at = T_base_thing[:3, :3] @ point + T_base_thing[:3, 3] + short * UP
            for sign in (1.0, -1.0):
                yield at, sign * across


def _across(thing: Solid, T_base_thing: Matrix) -> Matrix:
    """Returns the middles of a thing's balls seen from above (N, 2), metres."""
    return np.asarray(thing.points @ T_base_thing[:2, :3].T + T_base_thing[:2, 3])


BOX_LEANS_DEG = (-20.0, 0.0, 20.0)
ALONG_SHARE = (-0.3, 0.0, 0.3)  # Of half its length, where a box is taken.
THICKEST_M = 0.053
DEEPEST_M = 0.022  # The middle between the pads goes at most that far below the top of a box.
# A short way down is a slow one; on a fast one the wrist lags by more than the pads have room.
HOVER_M = 0.055
TIP_M = 0.02  # And stays at least that far above the table.
SLOTS_M = (-0.09, 0.0, 0.09)  # Along the bin.
SPACING_M = 0.075
SHIFTS_M = (0.0, -0.012, 0.012)  # Across the bin, where its middle is out of reach.
BOTTOM_M = 0.013  # A box is let go that far above the table; the bin's floor is 5 mm thick.
# By which the gripper opens wider than the box is thick, so that the fingers have room in the bin.
PLAY_M = 0.008


class StorageBinExpert(GatheringExpert[StorageBin]):
    """Boxes are taken from above by two upright faces, leaning by up to 20 degrees, and stood side by side across the bin."""

    task_class = StorageBin

    def rim(self, task: StorageBin) -> float:
        """Returns the height of the bin, metres."""
        return task.bin.height

    def grasps(self, task: StorageBin, thing: Solid, T_base_thing: Matrix) -> Sequence[Grasp]:
        """Returns the ways to take a box."""
        box = _box(task, thing)
        turn = T_base_thing[:3, :3]
        found = []
        for axis in range(3):
            across = turn[:, axis]
            if 2 * box.half[axis] > THICKEST_M or abs(across[2]) > 0.3:
                continue
            level = np.cross(UP, across)
            reach = float((np.abs(turn.T @ level) * box.half).max())
            half_height = float(np.abs(turn[2]) @ box.half)
            height = max(
                half_height - DEEPEST_M, min(0.0, TIP_M - half_height), TIP_M - half_height
            )
            thickness = 2 * float(box.half[axis])
            for share in ALONG_SHARE:
                at = T_base_thing[:3, 3] + share * reach * level + height * UP
                for sign in (1.0, -1.0):
                    for lean in BOX_LEANS_DEG:
                        T = inverse(T_base_thing) @ downwards(at, sign * across * (1, 1, 0), lean)
                        found.append(Grasp(T, closed_on(thickness), hover=HOVER_M))
        return found

    def drops(
        self, task: StorageBin, thing: Solid, rotation: Matrix, member: Member
    ) -> Sequence[Drop]:
        """Returns the free slots of the bin, the pads closing along it."""
        scene = member.skills.scene
        rng = member.skills.rng
        T_base_bin = scene.pose(task.bin)
        yaw = float(
            np.arctan2(T_base_bin[1, 1], T_base_bin[0, 1])
            - np.arctan2(rotation[1, 1], rotation[0, 1])
        )
        others = [scene.pose(other.prop)[:2, 3] for other in task.things if other is not thing]
        there = [
            (spot - T_base_bin[:2, 3]) @ T_base_bin[:2, :2] for spot in (*others, *member.avoided)
        ]
        taken = [spot[1] for spot in there if (np.abs(spot) < task.bin.inner).all()]
        slots = [
            slot
            for slot in rng.permutation(SLOTS_M)
            if all(abs(slot - other) > SPACING_M for other in taken)
        ]
        yaw = (
            yaw + np.pi / 2
        ) % np.pi - np.pi / 2  # The pads are alike; the shorter turn comes first.
        turns = [
            rotation_about(UP, yaw - half_turn) @ rotation
            for half_turn in (0.0, np.copysign(np.pi, yaw))
        ]
        opening = min(1.0, (2 * float(min(_box(task, thing).half[:2])) + PLAY_M) / GAP_M)
        return [
            Drop((T_base_bin @ (shift, slot, 0.0, 1.0))[:2], turned, BOTTOM_M, opening)
            for shift in SHIFTS_M
            for slot in slots
            for turned in turns
        ]


def _box(task: StorageBin, thing: Solid) -> SnackBox:
    return next(box for box in task.boxes if box is thing.prop)
