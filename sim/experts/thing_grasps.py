"""How a thing of some form is taken from above, from wherever it lies."""

from collections.abc import Iterator

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.iiwa14 import FINGERS
from stringline.datasets.embodiments.iiwa14_mjcf import PAD_HALF
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.sim.experts.drops import downwards
from stringline.sim.experts.grasps import Grasp
from stringline.sim.experts.skills import Skills
from stringline.sim.props.objects import Thing

LEANS_DEG = (-14.0, 0.0, 14.0)
LEVEL = 0.3  # Largest slope of the direction in which the pads close.
SQUEEZE_M = (
    0.02  # The drive is commanded that much closer than a thing is wide: it pushes with 25 N.
)
PLAY_M = 0.045  # By which the gripper comes wider than the thing.
FREE_M = (
    0.055  # So far from the middle between the pads back to the hand there is room for a thing.
)
OFF_TABLE_M = 0.004  # Between pads and table.
GAP_M = float(FINGERS.gap(1.0))


def opening(gap: float) -> float:
    """Returns the opening at which the pads are that far apart, metres, or as far as they go."""
    return float(np.clip(gap / GAP_M, 0.0, 1.0))


def grasps(thing: Thing, T_base_thing: Matrix, table: float, foot: Vector) -> list[Grasp]:
    """Returns ways to take a thing that lies on the table.

    Args:
        thing: What is taken.
        T_base_thing: (4, 4), where it is.
        table: Height of the table top, metres.
        foot: (3,), of the arm; the camera on the hand points away from it.
    """
    found = []
    top = thing.highest(T_base_thing)
    for hold in thing.form.holds:
        across = T_base_thing[:3, :3] @ hold.across
        point = T_base_thing[:3, :3] @ hold.point + T_base_thing[:3, 3]
        if abs(across[2]) > LEVEL:
            continue
        for T_base_gripper in _from_above(point, across * (1.0, 1.0, 0.0), top, table):
            if natural(T_base_gripper, foot):
                closed = opening(hold.width - SQUEEZE_M)
                wide = opening(hold.width + PLAY_M)
                found.append(Grasp(inverse(T_base_thing) @ T_base_gripper, closed, wide))
    return found


def natural(T_base_gripper: Matrix, foot: Vector) -> bool:
    """Says whether the hand's back, which carries the camera, does not point back at the arm's foot."""
    outwards = (T_base_gripper[:3, 3] - foot)[:2]
    return bool(T_base_gripper[:2, 2] @ outwards > -0.2 * np.linalg.norm(outwards))


def take(skills: Skills, thing: Thing, lift: float) -> Iterator[Vector]:
    """Yields joint targets (J,) by which the nearest arm that gets a thing takes it, once, and lifts it by metres.

    Raises:
        OutOfReachError: No arm gets it.
    """
    scene = skills.scene
    T_base_thing = skills.scene.pose(thing)
    away = {
        arm: float(np.linalg.norm(scene.foot(arm) - T_base_thing[:3, 3]))
        for arm in scene.task.embodiment.arms
    }
    for arm in sorted(away, key=away.__getitem__):
        grasp = skills.choose(arm, thing, grasps(thing, T_base_thing, scene.table, scene.foot(arm)))
        if grasp is not None:
            yield from skills.pick(arm, thing, [grasp], lift=lift, attempts=1)
            return
    raise OutOfReachError(
        f"No arm gets {thing.name} at {np.round(T_base_thing[:3, 3], 3).tolist()} m."
    )


def holder(skills: Skills, thing: Thing) -> str | None:
    """Returns the arm that holds a thing, or None."""
    return next(
        (arm for arm in skills.scene.task.embodiment.arms if skills.scene.holds(arm, thing)), None
    )


def _from_above(point: Vector, across: Vector, top: float, table: float) -> Iterator[Matrix]:
    """Yields poses (4, 4) of a gripper that closes around a point, or above it where the hand or the tips would touch."""
    for lean in LEANS_DEG:
        tilt = np.radians(abs(lean))
        tips = PAD_HALF[2] * np.cos(tilt) + PAD_HALF[0] * np.sin(tilt) + OFF_TABLE_M
        height = max(point[2], top - FREE_M * np.cos(tilt), table + tips)
        for sign in (1.0, -1.0):
            yield downwards((*point[:2], height), sign * across, lean)
