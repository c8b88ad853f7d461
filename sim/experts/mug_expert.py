"""A scripted expert that stands the mug on the plate: it pinches the mug's wall, for the mug is wider than the gripper opens.

Where no arm reaches both, the arm at the mug stands it in the middle of the table, and the other
one takes it from there.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import numpy as np

from stringline.datasets.embodiments.aloha import ARMS, ROOTS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.grasps import UP, Grasp, backed, both_ways, gripper_pose, raised
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.props.dishes import Mug
from stringline.sim.tasks.mug_task import MugOnPlate, gap

DEPTH_M = 0.013  # The pads' middle is that far below the rim.
OPENING = 0.5  # Of the gripper around the wall: the inner finger has to fit into the mug.
FREE_OF_HANDLE = np.radians(36.0)
TILTS_DEG = (0.0, 15.0, 30.0)
LYING_TILTS_DEG = (25.0, 35.0, 45.0)
LIFT_M = 0.1
DROP_M = 0.003
SPARE_M = 0.015
RETREAT_M = 0.08
FARTHEST_M = 0.64
ROUNDS = 8
TRIED = 40
# Corners of a gripper in its frame: tips of the fingers, and the hand behind them.
OUTLINE = np.array(
    [(x, sign * y, z) for x, y, z in ((0.016, 0.035, 0.0), (-0.11, 0.085, 0.0)) for sign in (-1, 1)]
)


@dataclass(frozen=True)
class _Way:
    """How an arm takes the mug, and the pose (4, 4) in which it lets it go."""

    arm: str
    grasp: Grasp
    T_base_mug: Matrix


class MugOnPlateExpert(ScriptedExpert[MugOnPlate]):
    """Varies where around the mug and how steeply the wall is pinched, how the mug is turned, and where it changes hands."""

    task_class = MugOnPlate

    def script(self, task: MugOnPlate, skills: Skills) -> Iterator[Vector]:
        """Brings the mug to the plate in one or two legs, and again from wherever it has fallen."""
        for _ in range(ROUNDS):
            with suppress(
                OutOfReachError
            ):  # It moved in the gripper, and no longer gets where it was planned to go.
                yield from _bring(task, skills, _plan(task, skills))
            if task.reached(skills.scene.env.physics):
                break
            yield from skills.go_home(*ARMS)
        yield from skills.go_home(*ARMS)


def wall_grasps(mug: Mug, tilts_deg: Iterable[float]) -> list[Grasp]:
    """Returns ways to pinch a mug's wall, free of its handle; the gripper leans along the wall by the tilts, in degrees."""
    grasps = []
    middle = mug.radius - mug.thickness / 2
    for angle, tilt in product(
        np.linspace(FREE_OF_HANDLE, 2 * np.pi - FREE_OF_HANDLE, 18), np.radians(list(tilts_deg))
    ):
        outwards = np.array([np.cos(angle), np.sin(angle), 0.0])
        for along in (np.cross(UP, outwards), -np.cross(UP, outwards)):
            if tilt and outwards[0] > -0.2 and along[0] < 0:
                continue  # It would come and leave through the handle.
            point = middle * outwards + (mug.height - DEPTH_M) * UP
            forwards = np.sin(tilt) * along - np.cos(tilt) * UP
            grasps.append(
                Grasp(gripper_pose(point, forwards, outwards), closed=0.0, opening=OPENING)
            )
    return both_ways(grasps)


def _plan(task: MugOnPlate, skills: Skills) -> _Way:
    """Returns the way to the plate, or to a place from which the other arm gets it there.

    Raises:
        OutOfReachError: There is none.
    """
    for arm in ARMS:
        if _carries(task, skills, arm):
            return _onwards(task, skills, arm)
    T_base_mug = skills.scene.pose(task.mug)
    goal = _goal(task, skills)
    nearest = sorted(ARMS, key=lambda arm: float(abs(ROOTS[arm][0, 3] - T_base_mug[0, 3])))
    if abs(T_base_mug[0, 3]) < 0.06:
        nearest = sorted(ARMS, key=lambda arm: float(abs(ROOTS[arm][0, 3] - goal[0])))
    for arm in nearest:
        if way := _find(task, skills, arm, T_base_mug, goal):
            return way
    for spot in _free_spots(task, skills):
        for giver, taker in (nearest, nearest[::-1]):
            way = _find(task, skills, giver, T_base_mug, spot)
            if way and _find(task, skills, taker, way.T_base_mug, goal):
                return way
    raise OutOfReachError(
        f"Neither arm can bring the mug from {np.round(T_base_mug[:3, 3], 3).tolist()} m to the "
        f"plate."
    )


def _bring(task: MugOnPlate, skills: Skills, way: _Way) -> Iterator[Vector]:
    """Goes a way; ends early where the mug is lost."""
    if not _carries(task, skills, way.arm):
        yield from skills.pick(way.arm, task.mug, [way.grasp], lift=LIFT_M, attempts=1)
    while _carries(task, skills, way.arm):
        yield from skills.place(
            way.arm,
            task.mug,
            lambda: way.T_base_mug,
            above=LIFT_M,
            release=OPENING,
            retreat=RETREAT_M,
        )
    yield from skills.wait(0.6)


def _carries(task: MugOnPlate, skills: Skills, arm: str) -> bool:
    """Says whether an arm has lifted the mug; after a slip a single pad may touch the wall at a time."""
    touching = task.touching(skills.scene.env.physics)
    others = ("table", task.plate.name)
    return touching.by_arm(arm, task.mug.name) and not any(
        touching.between(other, task.mug.name) for other in others
    )


def _onwards(task: MugOnPlate, skills: Skills, arm: str) -> _Way:
    """Returns where an arm can put down the mug that it holds: on the plate, or at a free place.

    Raises:
        OutOfReachError: Nowhere; then the gripper opens.
    """
    held = Grasp(inverse(skills.scene.in_gripper(arm, task.mug)), closed=0.0)
    for spot in (_goal(task, skills), *_free_spots(task, skills)):
        for yaw in skills.rng.uniform(-np.pi, np.pi, 16):
            T_goal = pose(spot, rotation_about(UP, yaw))
            leave = T_goal @ held.T_prop_gripper
            if skills.in_reach(arm, raised(leave, LIFT_M), leave, backed(leave, RETREAT_M)):
                return _Way(arm, held, T_goal)
    skills.motion.grip(arm, 1.0)
    raise OutOfReachError(f"The {arm} arm gets the mug nowhere as it holds it.")


def _goal(task: MugOnPlate, skills: Skills) -> Vector:
    return np.asarray(skills.scene.pose(task.plate)[:3, 3] + (task.plate.thickness + DROP_M) * UP)


def _find(
    task: MugOnPlate, skills: Skills, arm: str, T_base_mug: Matrix, spot: Vector
) -> _Way | None:
    """Returns a way for an arm to bring the mug from a pose to a spot (3,), drawn at random from those in reach."""
    stands = T_base_mug[2, 2] > 0.9
    grasps = [
        grasp
        for grasp in wall_grasps(task.mug, TILTS_DEG if stands else LYING_TILTS_DEG)
        if _natural(arm, T_base_mug @ grasp.T_prop_gripper, skills.scene.table)
    ]
    for index in skills.rng.permutation(len(grasps))[:TRIED]:
        grasp = grasps[int(index)]
        T_goal = _turned(arm, T_base_mug, spot, skills.rng, stands=stands)
        take = T_base_mug @ grasp.T_prop_gripper
        leave = T_goal @ grasp.T_prop_gripper
        if not _natural(arm, leave, spot[2]):
            continue
        there = backed(take, grasp.hover), take, raised(take, LIFT_M)
        if skills.in_reach(
            arm, *there, raised(leave, LIFT_M + SPARE_M), leave, backed(leave, RETREAT_M)
        ):
            return _Way(arm, grasp, T_goal)
    return None


def _turned(
    arm: str, T_base_mug: Matrix, spot: Vector, rng: np.random.Generator, *, stands: bool
) -> Matrix:
    """Returns a standing mug's pose at a spot: turned with the arm, give or take; from lying any."""
    if not stands:
        return pose(spot, rotation_about(UP, rng.uniform(-np.pi, np.pi)))
    foot = ROOTS[arm][:2, 3]
    x, y = T_base_mug[:2, 3] - foot
    x_goal, y_goal = spot[:2] - foot
    turn = np.arctan2(y_goal, x_goal) - np.arctan2(y, x) + rng.uniform(-0.7, 0.7)
    yaw = np.arctan2(T_base_mug[1, 0], T_base_mug[0, 0])
    return pose(spot, rotation_about(UP, yaw + turn))


def _natural(arm: str, T_base_gripper: Matrix, ground: float) -> bool:
    """Says whether a gripper points down and not back at its own arm, and keeps off the ground at that height."""
    forwards = T_base_gripper[:3, 0]
    outwards = T_base_gripper[:2, 3] - ROOTS[arm][:2, 3]
    lowest = (OUTLINE @ T_base_gripper[:3, :3].T + T_base_gripper[:3, 3])[:, 2].min()
    distance = np.linalg.norm(outwards)
    towards = forwards[2] < -0.3 and forwards[:2] @ outwards > -0.15 * distance
    return bool(towards and distance < FARTHEST_M and lowest > ground + 0.005)


def _free_spots(task: MugOnPlate, skills: Skills) -> list[Vector]:
    """Returns spots (3,) in the middle of the table where the mug can stand, those with most room first, give or take."""
    others = [prop for prop in task.props.values() if prop is not task.mug]
    covered = np.concatenate([task.footprint(prop, skills.scene.pose(prop)) for prop in others])
    size = task.mug.radius + task.mug.handle
    spots = [(x, y) for x in np.linspace(-0.12, 0.12, 9) for y in np.linspace(-0.22, 0.12, 18)]
    room = [
        min(gap(np.array([(x, y, size)]), covered), 0.04)
        + skills.rng.uniform(0, 0.015)
        - 0.2 * abs(x)
        for x, y in spots
    ]
    order = [index for index in np.argsort(room)[::-1] if room[index] > 0.0][:12]
    return [np.array([*spots[index], skills.scene.table + DROP_M]) for index in order]
