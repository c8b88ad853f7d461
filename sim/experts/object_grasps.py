"""Grasps of an object from above, wherever it lies."""

from collections.abc import Iterator

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.iiwa14 import FINGERS
from stringline.datasets.embodiments.iiwa14_mjcf import PAD_HALF
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.sim.experts.grasps import Grasp, downwards
from stringline.sim.experts.skills import Skills
from stringline.sim.props.graspable import Graspable

LEANS_DEG = (-14.0, 0.0, 14.0)
# Difference between an object's width and the commanded gap: the drive pushes with 25 N.
SQUEEZE_M = 0.02
PLAY_M = 0.045  # By which the approaching gripper is wider than the object.
FREE_M = 0.055  # Room for an object between the pads' middle and the hand.
OFF_TABLE_M = 0.004  # Gap between pads and table.
GAP_M = float(FINGERS.gap(1.0))


def opening(gap: float) -> float:
    """Returns the opening, 0 to 1, for a gap between the pads in metres."""
    return float(np.clip(gap / GAP_M, 0.0, 1.0))


# Cost of a grasp's distance from the object's middle, rad/m, beside the turn of the gripper: of the
# ends of an object, which need the same turn, each would be as good.
OFF_CENTRE = 20.0
UPRIGHT = 0.99  # Cosine of the tilt up to which a round object stands.


def object_grasps(
    item: Graspable, T_base_item: Matrix, table: float, foot: Vector, *, varied: bool = True
) -> list[Grasp]:
    """Returns the grasps of an object at a pose (4, 4) on a table at a height, metres.

    The camera on the hand points away from the arm's foot (3,), metres. Pads close on a standing
    round object in directions that turn with it if `varied`, and otherwise in the same ones
    whatever its yaw, which no image shows.
    """
    found = []
    top = item.highest(T_base_item)
    for hold in item.holds:
        if not hold.is_level(T_base_item[:3, :3]):
            continue
        across = T_base_item[:3, :3] @ hold.across
        if hold.around and not varied and T_base_item[2, 2] > UPRIGHT:
            across = hold.across
        point = T_base_item[:3, :3] @ hold.point + T_base_item[:3, 3]
        for T_base_gripper in _from_above(point, across * (1.0, 1.0, 0.0), top, table):
            if natural(T_base_gripper, foot):
                closed = opening(hold.width - SQUEEZE_M)
                wide = opening(hold.width + PLAY_M)
                found.append(Grasp(inverse(T_base_item) @ T_base_gripper, closed, wide))
    return found


def natural(T_base_gripper: Matrix, foot: Vector) -> bool:
    """Returns whether the hand's back with its camera points away from the arm's foot."""
    outwards = (T_base_gripper[:3, 3] - foot)[:2]
    return bool(T_base_gripper[:2, 2] @ outwards > -0.2 * np.linalg.norm(outwards))


def take(skills: Skills, item: Graspable, lift: float) -> Iterator[Vector]:
    """Grasps an object once, with the nearest arm that reaches it, and lifts it by metres.

    Raises:
        OutOfReachError: No arm reaches it.
    """
    scene = skills.scene
    T_base_item = skills.scene.pose(item)
    away = {
        arm: float(np.linalg.norm(scene.foot(arm) - T_base_item[:3, 3]))
        for arm in scene.task.embodiment.arms
    }
    for arm in sorted(away, key=away.__getitem__):
        foot = scene.foot(arm)
        grasps = object_grasps(item, T_base_item, scene.table, foot, varied=skills.varied)

        def off_centre(T_base_gripper: Matrix) -> float:
            away = T_base_gripper[:2, 3] - T_base_item[:2, 3]
            return OFF_CENTRE * float(np.linalg.norm(away))

        grasp = skills.choose(arm, item, grasps, off_centre)
        if grasp is not None:
            yield from skills.pick(arm, item, [grasp], lift=lift, attempts=1)
            return
    raise OutOfReachError(
        f"No arm reaches {item.name} at {np.round(T_base_item[:3, 3], 3).tolist()} m."
    )


def holder(skills: Skills, item: Graspable) -> str | None:
    """Returns the arm that holds an object, or None."""
    return next(
        (arm for arm in skills.scene.task.embodiment.arms if skills.scene.holds(arm, item)), None
    )


def _from_above(point: Vector, across: Vector, top: float, table: float) -> Iterator[Matrix]:
    """Yields poses (4, 4) of a gripper at a point, or above it where it would touch."""
    for lean in LEANS_DEG:
        tilt = np.radians(abs(lean))
        tips = PAD_HALF[2] * np.cos(tilt) + PAD_HALF[0] * np.sin(tilt) + OFF_TABLE_M
        height = max(point[2], top - FREE_M * np.cos(tilt), table + tips)
        for sign in (1.0, -1.0):
            yield downwards((*point[:2], height), sign * across, lean)
