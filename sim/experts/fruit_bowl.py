"""A scripted expert that puts all fruits into the bowl."""

from collections.abc import Iterator, Sequence

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.rigid import Matrix, inverse, rotation_about
from stringline.sim.experts.both_arms import Member
from stringline.sim.experts.drops import Drop, closed_on, downwards
from stringline.sim.experts.gathering import GatheringExpert
from stringline.sim.experts.grasps import FORWARDS, UP, Grasp
from stringline.sim.tasks.fruit_bowl import FruitBowl
from stringline.sim.tasks.gathering_task import Solid

LEANS_DEG = (-25.0, 0.0, 25.0)
TURNS_DEG = (0.0, 45.0, -45.0, 90.0, -90.0, 150.0)
BANANA_ALONG = (-0.02, 0.0, 0.02)  # Metres from its middle.
BANANA_SHORT_M = 0.006  # The middle between the pads stays that far above its axis, so that the tips keep off the table.
PEAR_ALONG = 0.004
SPOT_RADIUS_M = 0.05
SPOTS = 5  # For each turn.
MOST_DROPS = 12
ROOM_M = 0.05  # Two fruits whose middles are that far apart lie beside each other.
BOTTOMS_M = (0.02, 0.05)  # Let go that far above the table: in the empty bowl, and above what is in it.


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
            for lean in LEANS_DEG:
                at = downwards(point, across, lean)
                found.append(Grasp(inverse(T_base_thing) @ at, closed_on(2 * float(thing.radii[0]))))
        return found

    def drops(self, task: FruitBowl, thing: Solid, rotation: Matrix, member: Member) -> Sequence[Drop]:
        """Returns the roomiest of some spots and turns in the bowl."""
        scene, rng = member.skills.scene, member.skills.rng
        middle = scene.pose(task.bowl)[:2, 3]
        others = [_across(other, scene.pose(other.prop)) for other in task.things if other is not thing]
        there = [points for points in others if np.hypot(*(points.mean(axis=0) - middle)) < task.bowl.rim_radius]
        bottom = BOTTOMS_M[1] if there else BOTTOMS_M[0]
        there += [spot[None] for spot in member.avoided]
        lying = _across(thing, scene.pose(thing.prop)) - scene.pose(thing.prop)[:2, 3]
        found = []
        for turn in np.radians(TURNS_DEG):
            turned = rotation_about(UP, turn)
            angle, radius = rng.uniform(-np.pi, np.pi, SPOTS), SPOT_RADIUS_M * np.sqrt(rng.uniform(0, 1, SPOTS))
            for spot in middle + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1):
                points = spot + lying @ turned[:2, :2].T
                room = min((float(np.linalg.norm(points[:, None] - other, axis=-1).min()) for other in there), default=1.0)
                beyond = float(np.linalg.norm(points - middle, axis=-1).max()) - task.bowl.floor_radius
                found.append((min(room, ROOM_M) - 2 * max(beyond, 0.0), Drop(spot, turned @ rotation, bottom)))
        found.sort(key=lambda one: -one[0])
        return [drop for _, drop in found[:MOST_DROPS]]

    def _places(self, task: FruitBowl, thing: Solid, T_base_thing: Matrix) -> Iterator[tuple[Vector, Vector]]:
        """Yields where the pads' middle goes (3,) and in which level direction (3,) they close."""
        axes: list[tuple[Vector, Vector]]
        if thing.prop is task.banana:
            axes = [(task.banana.axis_point(np.array(along)), task.banana.axis_direction(along)) for along in BANANA_ALONG]
        elif thing.prop is task.pear:
            axes = [(np.array([0.0, PEAR_ALONG, 0.0]), np.array([0.0, 1.0, 0.0]))]
        else:
            around = np.radians(np.arange(0, 180, 30))
            axes = [(np.zeros(3), T_base_thing[:3, :3].T @ np.array([np.cos(a), np.sin(a), 0.0])) for a in around]
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
