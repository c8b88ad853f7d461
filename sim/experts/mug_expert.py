"""The expert that stands the mug on the plate.

It pinches the mug's wall, since the mug is wider than the gripper opens. Where no arm reaches both,
the arm at the mug stands it in the middle of the table, and the other one takes it from there.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from stringline.datasets.embodiments.aloha import ARMS, ROOTS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.motion import UP, Grasp, backed, both_ways, gripper_pose, raised
from stringline.sim.experts.skills import ScriptedExpert, Skills
from stringline.sim.props.prop import Prop
from stringline.sim.props.table_props import Mug
from stringline.sim.tasks.mug_task import MugOnPlate, gap

DEPTH_M = 0.013  # Depth of the pads' middle below the rim.
OPENING = 0.5  # Opening of the gripper around the wall: the inner finger has to fit into the mug.
FREE_OF_HANDLE = np.radians(36.0)
ANGLES = np.linspace(FREE_OF_HANDLE, 2 * np.pi - FREE_OF_HANDLE, 18)
# Direction of the wall that a plain expert takes, in the base frame: away from the operator. It is
# in reach wherever one arm reaches both mug and plate; the wall in front is not.
BACK = np.pi / 2
# Distances from that wall, along the rim, of those that it takes where it is out of reach.
BESIDE_BACK = np.radians([sign * step for step in range(0, 121, 10) for sign in (1, -1)][1:])
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
    """A grasp of the mug by an arm, and the pose (4, 4) in which it is released."""

    arm: str
    grasp: Grasp
    T_base_mug: Matrix


class MugOnPlateExpert(ScriptedExpert[MugOnPlate]):
    """Brings the mug to the plate; grasp, yaw and the place of a hand-over vary."""

    task_class = MugOnPlate

    def keeps(self, task: MugOnPlate, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether it is the mug, in one gripper alone."""
        return prop is task.mug and not all(skills.scene.holds(each, prop) for each in ARMS)

    def script(self, task: MugOnPlate, skills: Skills) -> Iterator[Vector]:
        """Brings the mug to the plate in one or two steps, again from wherever it has fallen."""
        for number in range(ROUNDS):
            skills.attempt(number)
            with suppress(OutOfReachError):  # It moved in the gripper; its goal is out of reach.
                yield from _bring(task, skills, _plan(task, skills))
            if task.reached(skills.scene.env.physics):
                break
            yield from skills.go_home(*ARMS)
        yield from skills.go_home(*ARMS)


def wall_grasps(
    mug: Mug, tilts_deg: Iterable[float], angles: Iterable[float] = ANGLES
) -> list[Grasp]:
    """Returns grasps of a mug's wall, clear of its handle, leaning along the wall by the tilts.

    Angles about the mug's axis are in rad; the handle is at 0.
    """
    grasps = []
    middle = mug.radius - mug.thickness / 2
    for angle, tilt in product(angles, np.radians(list(tilts_deg))):
        outwards = np.array([np.cos(angle), np.sin(angle), 0.0])
        for along in (np.cross(UP, outwards), -np.cross(UP, outwards)):
            if tilt and outwards[0] > -0.2 and along[0] < 0:
                continue  # It would pass through the handle.
            point = middle * outwards + (mug.height - DEPTH_M) * UP
            forwards = np.sin(tilt) * along - np.cos(tilt) * UP
            T_mug_gripper = gripper_pose(point, forwards, outwards)
            grasps.append(Grasp(T_mug_gripper, closed=0.0, opening=OPENING))
    return both_ways(grasps)


def back_wall_angles(T_base_mug: Matrix) -> list[float]:
    """Returns angles about a standing mug's axis, rad, clear of its handle, the rearmost first.

    They follow the pose of the mug, except where its handle points away from the operator: there
    the side of the handle changes.
    """
    yaw = np.arctan2(T_base_mug[1, 0], T_base_mug[0, 0])
    rearmost = np.clip((BACK - yaw) % (2 * np.pi), FREE_OF_HANDLE, 2 * np.pi - FREE_OF_HANDLE)
    angles = rearmost + BESIDE_BACK
    free = (angles > FREE_OF_HANDLE - 1e-9) & (angles < 2 * np.pi - FREE_OF_HANDLE + 1e-9)
    return [float(angle) for angle in angles[free]]


def _plan(task: MugOnPlate, skills: Skills) -> _Way:
    """Returns the way to the plate, or to a place from which the other arm can bring it there."""
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
    """Follows a way; ends early if the mug is lost."""
    if not _carries(task, skills, way.arm):
        yield from skills.pick(way.arm, task.mug, [way.grasp], lift=LIFT_M, attempts=1)
    while _carries(task, skills, way.arm):
        release = {"above": LIFT_M, "release": OPENING, "retreat": RETREAT_M}
        yield from skills.place(way.arm, task.mug, lambda: way.T_base_mug, **release)
    yield from skills.wait(0.6)


def _carries(task: MugOnPlate, skills: Skills, arm: str) -> bool:
    """Returns whether an arm has lifted the mug, perhaps with one pad only after a slip."""
    contacts = task.contact_state(skills.scene.env.physics)
    others = ("table", task.plate.name)
    return contacts.by_arm(arm, task.mug.name) and not any(
        contacts.between(other, task.mug.name) for other in others
    )


def _onwards(task: MugOnPlate, skills: Skills, arm: str) -> _Way:
    """Returns a way for the held mug to the plate or a free place; else the gripper opens."""
    held = Grasp(inverse(skills.scene.in_gripper(arm, task.mug)), closed=0.0)
    for spot in (_goal(task, skills), *_free_spots(task, skills)):
        for yaw in (2 * skills.unit(16) - 1) * np.pi:
            T_goal = pose(spot, rotation_about(UP, yaw))
            leave = T_goal @ held.T_prop_gripper
            if skills.in_reach(arm, raised(leave, LIFT_M), leave, backed(leave, RETREAT_M)):
                return _Way(arm, held, T_goal)
    skills.motion.grip(arm, 1.0)
    raise OutOfReachError(f"The {arm} arm cannot put the mug down as it holds it.")


def _goal(task: MugOnPlate, skills: Skills) -> Vector:
    return np.asarray(skills.scene.pose(task.plate)[:3, 3] + (task.plate.thickness + DROP_M) * UP)


def _find(
    task: MugOnPlate, skills: Skills, arm: str, T_base_mug: Matrix, spot: Vector
) -> _Way | None:
    """Draws a reachable way for an arm to bring the mug from a pose to a spot (3,), or None."""
    stands = T_base_mug[2, 2] > 0.9
    for grasp in islice(_grasps(task, skills, arm, T_base_mug, stands=stands), TRIED):
        T_goal = _turned(arm, T_base_mug, spot, skills.rng, stands=stands)
        take = T_base_mug @ grasp.T_prop_gripper
        leave = T_goal @ grasp.T_prop_gripper
        if not _natural(arm, leave, spot[2]):
            continue
        taking = (backed(take, grasp.hover), take, raised(take, LIFT_M))
        leaving = (raised(leave, LIFT_M + SPARE_M), leave, backed(leave, RETREAT_M))
        if skills.in_reach(arm, *taking, *leaving):
            return _Way(arm, grasp, T_goal)
    return None


def _grasps(
    task: MugOnPlate, skills: Skills, arm: str, T_base_mug: Matrix, *, stands: bool
) -> Iterator[Grasp]:
    """Yields the grasps of the mug in the order in which they are tried."""

    def natural(angles: Iterable[float], tilts_deg: Iterable[float]) -> list[Grasp]:
        grasps = wall_grasps(task.mug, tilts_deg, angles)
        ground = skills.scene.table
        return [one for one in grasps if _natural(arm, T_base_mug @ one.T_prop_gripper, ground)]

    if skills.varied or not stands:
        grasps = natural(ANGLES, TILTS_DEG if stands else LYING_TILTS_DEG)
        yield from skills.ordered_grasps(arm, T_base_mug, grasps)
        return
    for angle, tilt in product(back_wall_angles(T_base_mug), TILTS_DEG):
        yield from skills.ordered_grasps(arm, T_base_mug, natural((angle,), (tilt,)))[:1]


def _turned(
    arm: str, T_base_mug: Matrix, spot: Vector, rng: np.random.Generator, *, stands: bool
) -> Matrix:
    """Returns a standing mug's pose at a spot: turned as the arm turns; after lying, by any yaw."""
    if not stands:
        return pose(spot, rotation_about(UP, rng.uniform(-np.pi, np.pi)))
    foot = ROOTS[arm][:2, 3]
    x, y = T_base_mug[:2, 3] - foot
    x_goal, y_goal = spot[:2] - foot
    turn = np.arctan2(y_goal, x_goal) - np.arctan2(y, x) + rng.uniform(-0.7, 0.7)
    yaw = np.arctan2(T_base_mug[1, 0], T_base_mug[0, 0])
    return pose(spot, rotation_about(UP, yaw + turn))


def _natural(arm: str, T_base_gripper: Matrix, ground: float) -> bool:
    """Returns whether a gripper points down, not back at its arm, and keeps off the ground."""
    forwards = T_base_gripper[:3, 0]
    outwards = T_base_gripper[:2, 3] - ROOTS[arm][:2, 3]
    lowest = (OUTLINE @ T_base_gripper[:3, :3].T + T_base_gripper[:3, 3])[:, 2].min()
    distance = np.linalg.norm(outwards)
    towards = forwards[2] < -0.3 and forwards[:2] @ outwards > -0.15 * distance
    return bool(towards and distance < FARTHEST_M and lowest > ground + 0.005)


def _free_spots(task: MugOnPlate, skills: Skills) -> list[Vector]:
    """Returns spots (3,) on the table, those with much room first, partly at random."""
    others = [prop for prop in task.props.values() if prop is not task.mug]
    covered = np.concatenate([task.footprint(prop, skills.scene.pose(prop)) for prop in others])
    size = task.mug.radius + task.mug.handle
    spots = [(x, y) for x in np.linspace(-0.12, 0.12, 9) for y in np.linspace(-0.22, 0.12, 18)]
    room = []
    for x, y in spots:
        free = min(gap(np.array([(x, y, size)]), covered), 0.04)
        room.append(free + skills.rng.uniform(0, 0.015) - 0.2 * abs(x))
    order = [index for index in np.argsort(room)[::-1] if room[index] > 0.0][:12]
    return [np.array([*spots[index], skills.scene.table + DROP_M]) for index in order]
