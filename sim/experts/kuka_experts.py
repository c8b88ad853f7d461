"""Experts of the KUKA tasks: pick, place and hand-over, with one arm or two.

Objects are grasped from above, wherever they lie.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from stringline.datasets.embodiments.embodiment import FingerTravel, Vector
from stringline.datasets.embodiments.iiwa14 import FINGERS
from stringline.datasets.embodiments.iiwa14_mjcf import PAD_HALF
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.hand_over_experts import HandOverExpert
from stringline.sim.experts.motion import UP, Grasp, backed, downwards, raised
from stringline.sim.experts.skills import ScriptedExpert, Skills
from stringline.sim.props.objects import Graspable
from stringline.sim.props.prop import Prop
from stringline.sim.robots.workcells import KUKA_CELL, PadSizes, Workcell
from stringline.sim.tasks.kuka_tasks import (
    LIFTED_M,
    KukaBimanualPick,
    KukaBimanualPlace,
    KukaHandOver,
    KukaPick,
    KukaPlace,
)

LEANS_DEG = (-14.0, 0.0, 14.0)
# Difference between an object's width and the commanded gap: the drive pushes with 25 N.
SQUEEZE_M = 0.02
PLAY_M = 0.045  # By which the approaching gripper is wider than the object.
OFF_TABLE_M = 0.004  # Gap between pads and table.


def opening(gap: float, fingers: FingerTravel = FINGERS) -> float:
    """Returns the opening, 0 to 1, for a gap between the pads in metres."""
    return float(np.clip(gap / fingers.gap(1.0), 0.0, 1.0))


# Cost of a grasp's distance from the object's middle, rad/m, beside the turn of the gripper: of the
# ends of an object, which need the same turn, each would be as good.
OFF_CENTRE = 20.0
UPRIGHT = 0.99  # Cosine of the tilt up to which a round object stands.


def object_grasps(
    item: Graspable,
    T_base_item: Matrix,
    table: float,
    foot: Vector,
    *,
    varied: bool = True,
    cell: Workcell = KUKA_CELL,
) -> list[Grasp]:
    """Returns the grasps of an object at a pose (4, 4) on a table at a height, metres.

    The gripper is that of a cell. The camera on the hand points away from the arm's foot (3,),
    metres. Pads close on a standing round object in directions that turn with it if `varied`, and
    otherwise in the same ones whatever its yaw, which no image shows.
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
        for T_base_gripper in _from_above(point, across * (1.0, 1.0, 0.0), top, table, cell.pads):
            if natural(T_base_gripper, foot):
                closed = opening(hold.width - SQUEEZE_M, cell.fingers)
                wide = opening(hold.width + PLAY_M, cell.fingers)
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
        grasps = object_grasps(
            item, T_base_item, scene.table, foot, varied=skills.varied, cell=scene.task.cell
        )

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


def _from_above(
    point: Vector, across: Vector, top: float, table: float, pads: PadSizes
) -> Iterator[Matrix]:
    """Yields poses (4, 4) of a gripper at a point, or above it where it would touch."""
    for lean in LEANS_DEG:
        tilt = np.radians(abs(lean))
        tips = pads.tip * np.cos(tilt) + pads.half_width * np.sin(tilt) + OFF_TABLE_M
        height = max(point[2], top - pads.free * np.cos(tilt), table + tips)
        for sign in (1.0, -1.0):
            yield downwards((*point[:2], height), sign * across, lean)


ROUNDS = 6
WIDE_PACES = (0.8, 1.9)  # See `ScriptedExpert.paces`.
PICK_LIFTS_M = (0.125, 0.17)
HOLD_CHECKS = 8
PLACE_LIFTS_M = (0.08, 0.13)
ABOVE_TRAY_M = 0.09
DROP_M = 0.003
RETREAT_M = 0.1
# Distance by which the pads open around the object; fully open fingers would touch the tray's rim.
RELEASE_M = 0.035
GOAL_DRAWS = 60
RELEASED_UPRIGHT = 0.85  # Cosine of the tilt below which an object is released upright.
BAR_X, BAR_Y, BAR_Z = np.eye(3)
BAR_ABOVE_FLOOR_M = 0.01  # Height of the bar's underside above the bin's floor at the release.
BAR_SKEW_DEG = 6.0  # Largest angle between bar and bin at the release.


class KukaPickExpert(ScriptedExpert[KukaPick]):
    """Picks the object; grasp, lift height and pace vary."""

    task_class = KukaPick
    paces = WIDE_PACES

    def script(self, task: KukaPick, skills: Skills) -> Iterator[Vector]:
        """Picks the object and holds it up, again from wherever it has fallen."""
        for number in range(ROUNDS):
            skills.attempt(number)
            with suppress(OutOfReachError):
                lift = skills.rng.uniform(*PICK_LIFTS_M)
                if holder(skills, task.object) is None:
                    yield from take(skills, task.object, lift)
                yield from self._hold_up(task, skills)
            if holder(skills, task.object) is None:
                yield from _open_at_home(skills)

    def _hold_up(self, task: KukaPick, skills: Skills) -> Iterator[Vector]:
        """Waits while the object is held, and lifts it further if it has slipped too low."""
        for _ in range(HOLD_CHECKS):
            arm = holder(skills, task.object)
            if arm is None:
                break
            missing = LIFTED_M - task.clearance(skills.scene.env.physics)
            if missing > 0:
                yield from skills.rise(arm, missing + 0.02)
            yield from skills.wait(0.3)


class KukaPlaceExpert(ScriptedExpert[KukaPlace]):
    """Picks and places the object; grasp, orientation in the tray and pace vary."""

    task_class = KukaPlace
    paces = WIDE_PACES

    def script(self, task: KukaPlace, skills: Skills) -> Iterator[Vector]:
        """Brings the object to the tray, again from wherever it has fallen."""
        for number in range(ROUNDS):
            skills.attempt(number)
            with suppress(OutOfReachError):
                yield from self._once(task, skills)
            if task.reached(skills.scene.env.physics) and holder(skills, task.object) is None:
                yield from skills.wait(0.6)
            yield from _open_at_home(skills)

    def keeps(self, task: KukaPlace, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether it is the object."""
        return prop is task.object

    def _once(self, task: KukaPlace, skills: Skills) -> Iterator[Vector]:
        lift = skills.rng.uniform(*PLACE_LIFTS_M)
        if holder(skills, task.object) is None:
            yield from take(skills, task.object, lift)
        arm = holder(skills, task.object)
        if arm is not None:
            T_goal = _goal(task, skills, arm)
            gripper = task.embodiment.grippers[arm]
            wider = opening(RELEASE_M, task.cell.fingers)
            release = min(1.0, float(skills.scene.joints()[gripper]) + wider)
            release_at = {"above": ABOVE_TRAY_M, "release": release, "retreat": RETREAT_M}
            yield from skills.place(arm, task.object, lambda: T_goal, **release_at)


def _open_at_home(skills: Skills) -> Iterator[Vector]:
    """Opens all grippers and moves the arms home."""
    arms = skills.scene.task.embodiment.arms
    for arm in arms:
        skills.motion.grip(arm, 1.0)
    yield from skills.go_home(*arms)


def _goal(task: KukaPlace, skills: Skills, arm: str) -> Matrix:
    """Draws a reachable pose (4, 4) in the tray for the object as the arm holds it."""
    T_gripper_item = skills.scene.in_gripper(arm, task.object)
    foot = skills.scene.foot(arm)
    turn = skills.scene.pose(task.object)[:3, :3]
    if turn[2, 2] > RELEASED_UPRIGHT:
        turn = rotation_about(UP, np.arctan2(turn[1, 0], turn[0, 0]))
    for number in range(GOAL_DRAWS):
        skills.attempt(number)
        yaw = rotation_about(UP, skills.rng.uniform(-np.pi, np.pi))
        T_goal = _in_tray(task, skills, yaw @ turn)
        leave = T_goal @ inverse(T_gripper_item)
        way = (raised(leave, ABOVE_TRAY_M), leave, backed(leave, RETREAT_M))
        if natural(leave, foot) and skills.in_reach(arm, *way):
            return T_goal
    raise OutOfReachError(f"The {arm} arm cannot place {task.object.name} as it holds it.")


def _in_tray(task: KukaPlace, skills: Skills, turn: Matrix) -> Matrix:
    """Returns a pose (4, 4) of the object, rotated by `turn` (3, 3), in the tray's middle."""
    T_base_tray = skills.scene.pose(task.tray)
    points = task.object.points @ turn.T
    radii = task.object.radii[:, None]
    low = (points - radii).min(axis=0)
    high = (points + radii).max(axis=0)
    middle = np.array([*(low + high)[:2] / 2, low[2] - task.tray.thickness - DROP_M])
    return pose(T_base_tray[:3, 3] - middle, turn)


class KukaHandOverExpert(HandOverExpert[KukaHandOver]):
    """Hands the bar over; either gripper takes one end of it by two of its flats."""

    task_class = KukaHandOver
    paces = (0.8, 2.1)
    right_along = (0.055, 0.075)
    left_along = (0.05, 0.075)
    above = 0.1
    closed = opening(0.028 - SQUEEZE_M)
    leans_deg = (-14.0, 0.0, 14.0)
    pitches_deg = (-20.0, -8.0, 4.0)
    sides_deg = (-30.0, 0.0, 30.0)
    usual_lean_deg = 14.0
    usual_pitch_deg = -8.0
    usual_side_deg = -30.0
    meeting_height = 0.58
    release = opening(0.028 + 0.045)
    pad_ahead = PAD_HALF[2]
    pad_half_width = PAD_HALF[0]

    def axis(self, task: KukaHandOver, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the bar's axis and its direction."""
        return along * BAR_X, BAR_X

    def normals(self, task: KukaHandOver) -> Sequence[Vector]:
        """Returns the normals of the bar's four flats."""
        return [BAR_Y, BAR_Z, -BAR_Y, -BAR_Z]

    def thickness(self, task: KukaHandOver) -> float:
        """Returns half the bar's width."""
        return task.bar.width / 2

    def goal(self, task: KukaHandOver, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns a pose of the bar along the bin, just above its floor, below the left gripper."""
        T_base_bin = skills.scene.pose(task.bin)
        skew = np.radians(skills.rng.uniform(-BAR_SKEW_DEG, BAR_SKEW_DEG))
        skew = skew + skills.option((0.0, np.pi), np.pi)
        height = task.bin.thickness + task.bar.width / 2 + BAR_ABOVE_FLOOR_M
        along = rotation_about(UP, skew) @ T_base_bin[:3, 0]
        forwards = receive.T_prop_gripper[:3, 0]
        down = forwards - (forwards @ BAR_X) * BAR_X
        down = down / np.linalg.norm(down)
        item = np.stack([BAR_X, down, np.cross(BAR_X, down)], axis=1)
        world = np.stack([along, -UP, np.cross(along, -UP)], axis=1)
        return pose(T_base_bin[:3, 3] + UP * height, world @ item.T)


class KukaBimanualPickExpert(KukaPickExpert):
    """Picks with the nearer arm."""

    task_class = KukaBimanualPick


class KukaBimanualPlaceExpert(KukaPlaceExpert):
    """Places with the nearer arm."""

    task_class = KukaBimanualPlace
