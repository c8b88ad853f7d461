"""Grasps of square bars and tubes near their ends, in any of their quarter turns."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, rotation_about
from stringline.sim.experts.correction import Correction, twist
from stringline.sim.experts.grasps import UP, Grasp, backed, gripper_pose, raised
from stringline.sim.experts.motion import Move
from stringline.sim.experts.skills import CLOSING, OPENING, SETTLING, Done, Skills
from stringline.sim.props.prop import Prop

# Directions from the arms' feet to the table.
FORWARDS = {"left": np.array([1.0, 0.0, 0.0]), "right": np.array([-1.0, 0.0, 0.0])}
# Flatter pitches stretch the wrist out. With steeper ones the cameras on both grippers collide,
# which reach 4 to 8 cm over the gripper's tip at 55 to 72 degrees.
PITCHES_DEG = (60.0, 63.0, 66.0)
# The pads' middle stops that far short of the axis, metres, so that their tips keep off the table.
GRASP_SHORT = 0.009
# Distance of the pre-grasp pose, metres. A gripper comes down slowly from there: at speed its
# joints lag by different times, and it strays.
HOVER = 0.06
# Largest error of the pre-grasp pose before the gripper comes down, metres and radians.
SETTLED = (0.0015, 0.015)
SETTLE_SECONDS = 1.0
ATTEMPTS = 3


@dataclass(frozen=True)
class BarGrasp:
    """An arm's grasp of a bar or tube near its end.

    Attributes:
        along: Distance from the middle, towards the arm's foot, metres.
        closed: Commanded opening that holds the bar.
        pitches_deg: Angles by which the gripper may point down.
    """

    arm: str
    along: float
    closed: float
    pitches_deg: tuple[float, ...] = PITCHES_DEG


def axis_towards(T_base_prop: Matrix, direction: Vector) -> Vector:
    """Returns the prop's x axis (3,) in the base frame, or its opposite if that is nearer."""
    axis = T_base_prop[:3, 0]
    return np.asarray(axis if axis @ direction >= 0 else -axis)


def end_grasps(T_base_prop: Matrix, part: BarGrasp) -> list[Grasp]:
    """Returns grasps of a square bar or tube across its upper face, at several pitches.

    The bar lies along the x axis of its pose (4, 4).
    """
    axis = axis_towards(T_base_prop, FORWARDS[part.arm])
    faces = np.concatenate([T_base_prop[:3, 1:3].T, -T_base_prop[:3, 1:3].T])
    up = faces[np.argmax(faces @ UP)]
    grasps = []
    for pitch in np.radians(part.pitches_deg):
        forwards = np.cos(pitch) * axis - np.sin(pitch) * up
        position = T_base_prop[:3, 3] - part.along * axis - GRASP_SHORT * forwards
        T_base_gripper = gripper_pose(position, forwards, np.cross(up, axis))
        grasps.append(Grasp(inverse(T_base_prop) @ T_base_gripper, part.closed, hover=HOVER))
    return grasps


def nearest_turn(rotation: Matrix) -> Matrix:
    """Returns the symmetry (3, 3) of a square bar along x that is nearest to a rotation."""
    quarter = rotation_about((1.0, 0.0, 0.0), np.arange(4) * np.pi / 2)
    half = np.diag([-1.0, 1.0, -1.0])
    turns = np.concatenate([quarter, half @ quarter])
    return np.asarray(turns[np.argmax(np.einsum("nij,ij->n", turns, rotation))])


def take(skills: Skills, part: BarGrasp, prop: Prop, *, lift: float = 0.08) -> Done:
    """Takes a bar or tube near its end, both pads flat on it, and lifts it by metres.

    Its pose is read before each attempt.
    """
    arm = part.arm

    def turn(grasp: Grasp) -> float:
        return skills.turn(arm, skills.scene.pose(prop) @ grasp.T_prop_gripper)

    for _ in range(ATTEMPTS):
        T_base_prop = skills.scene.pose(prop)
        grasps = end_grasps(T_base_prop, part)
        ways = [_way(T_base_prop @ grasp.T_prop_gripper, grasp.hover, lift) for grasp in grasps]
        pairs = zip(grasps, ways, strict=True)
        passable = [grasp for grasp, way in pairs if skills.in_reach(arm, *way)] or grasps
        grasp = skills.one_of(passable, turn)
        yield from _close_on(skills, arm, T_base_prop @ grasp.T_prop_gripper, grasp)
        if _flat(inverse(grasp.T_prop_gripper), skills.scene.in_gripper(arm, prop)):
            yield from skills.rise(arm, lift)
            if skills.scene.holds(arm, prop):
                return True
        yield from skills.grip(arm, grasp.opening, OPENING)
        yield from skills.back_off(arm, grasp.hover)
    return False


def _close_on(skills: Skills, arm: str, T_base_gripper: Matrix, grasp: Grasp) -> Iterator[Vector]:
    """Comes down from exactly above and closes the gripper; a socket has 7 mm to each open pad."""
    hover = backed(T_base_gripper, grasp.hover)
    correction = Correction()
    skills.motion.grip(arm, grasp.opening)
    yield from skills.go(1.0, {arm: Move(lambda: hover)})
    end = skills.scene.env.time + SETTLE_SECONDS
    while skills.scene.env.time < end:
        error = twist(inverse(hover) @ skills.scene.gripper(arm))
        if np.linalg.norm(error[:3]) < SETTLED[0] and np.linalg.norm(error[3:]) < SETTLED[1]:
            break
        correction.update(error)
        yield skills.motion.step(arm, hover @ correction.transform)
    T_base_target = T_base_gripper @ correction.transform
    yield from skills.go(0.8, {arm: Move(lambda: T_base_target, straight=True)})
    yield from skills.wait(SETTLING)
    yield from skills.grip(arm, grasp.closed, CLOSING)


def _flat(expected: Matrix, measured: Matrix) -> bool:
    """Returns whether a pose (4, 4) in the gripper is as expected, to 3 cm and 8 degrees."""
    error = twist(inverse(expected) @ measured)
    return bool(np.linalg.norm(error[:3]) < 0.03 and np.linalg.norm(error[3:]) < 0.14)


def _way(T_base_gripper: Matrix, hover: float, lift: float) -> list[Matrix]:
    """Returns gripper poses on the way down to a grasp and up again, dense enough for the wrist."""
    down = [backed(T_base_gripper, hover * share) for share in (1.0, 0.75, 0.5, 0.25, 0.0)]
    return down + [raised(T_base_gripper, lift * share) for share in (0.25, 0.5, 0.75, 1.0)]
