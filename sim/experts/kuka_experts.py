"""Experts of the KUKA tasks: pick, place and hand-over, with one arm or two."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.iiwa14_mjcf import PAD_HALF
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.grasps import UP, Grasp, backed, raised
from stringline.sim.experts.hand_over_base import HandOverExpert
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.experts.thing_grasps import GAP_M, SQUEEZE_M, holder, natural, opening, take
from stringline.sim.tasks.kuka_tasks import (
    LIFTED_M,
    KukaBimanualPick,
    KukaBimanualPlace,
    KukaHandOver,
    KukaPick,
    KukaPlace,
)

PICK_LIFTS_M = (0.125, 0.17)
PICK_ROUNDS = 6
LOOKS = 8
PACES = (
    0.8,
    1.9,
)  # Wider than others: the arm's limits already stretch the long moves of the faster episodes.


class KukaPickExpert(ScriptedExpert[KukaPick]):
    """Varies where the thing is taken, from which side and how steeply, how high it is lifted, and its pace."""

    task_class = KukaPick

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def script(self, task: KukaPick, skills: Skills) -> Iterator[Vector]:
        """Takes the thing and holds it up, again from wherever it has fallen."""
        for _ in range(PICK_ROUNDS):
            with suppress(OutOfReachError):
                yield from take(skills, task.thing, skills.rng.uniform(*PICK_LIFTS_M))
                yield from self._hold_up(task, skills)
            if holder(skills, task.thing) is None:
                yield from self._start_again(skills)

    def _hold_up(self, task: KukaPick, skills: Skills) -> Iterator[Vector]:
        """Waits for as long as the thing is held, and lifts it further where it has slipped too low."""
        for _ in range(LOOKS):
            arm = holder(skills, task.thing)
            if arm is None:
                break
            missing = LIFTED_M - task.clearance(skills.scene.env.physics)
            if missing > 0:
                yield from skills.rise(arm, missing + 0.02)
            yield from skills.wait(0.3)

    def _start_again(self, skills: Skills) -> Iterator[Vector]:
        arms = skills.scene.task.embodiment.arms
        for arm in arms:
            skills.motion.grip(arm, 1.0)
        yield from skills.go_home(*arms)


PLACE_LIFTS_M = (0.08, 0.13)
ABOVE_M = 0.09
DROP_M = 0.003
RETREAT_M = 0.1
ROOM_M = 0.035  # By which the pads open around the thing; all the way, fingers would meet the rim.
PLACE_ROUNDS = 6
DRAWS = 60
# Wider than others: the arm's limits already stretch the long moves of the faster episodes.
UPRIGHT = 0.85  # A thing that stands less than that far from upright is let go upright.


class KukaPlaceExpert(ScriptedExpert[KukaPlace]):
    """Varies how the thing is taken, how it is turned in the tray, and its pace."""

    task_class = KukaPlace

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def script(self, task: KukaPlace, skills: Skills) -> Iterator[Vector]:
        """Brings the thing to the tray, again from wherever it has fallen."""
        arms = task.embodiment.arms
        for _ in range(PLACE_ROUNDS):
            with suppress(OutOfReachError):
                yield from self._once(task, skills)
            if task.reached(skills.scene.env.physics) and holder(skills, task.thing) is None:
                yield from skills.wait(0.6)
            for arm in arms:
                skills.motion.grip(arm, 1.0)
            yield from skills.go_home(*arms)

    def _once(self, task: KukaPlace, skills: Skills) -> Iterator[Vector]:
        yield from take(skills, task.thing, skills.rng.uniform(*PLACE_LIFTS_M))
        arm = holder(skills, task.thing)
        if arm is not None:
            T_goal = _goal(task, skills, arm)
            gripper = task.embodiment.grippers[arm]
            release = min(1.0, float(skills.scene.joints()[gripper]) + ROOM_M / GAP_M)
            release_at = {"above": ABOVE_M, "release": release, "retreat": RETREAT_M}
            yield from skills.place(arm, task.thing, lambda: T_goal, **release_at)


def _goal(task: KukaPlace, skills: Skills, arm: str) -> Matrix:
    """Draws a pose (4, 4) of the thing in the tray that is in reach as the arm holds it.

    Raises:
        OutOfReachError: None was found.
    """
    T_gripper_thing = skills.scene.in_gripper(arm, task.thing)
    foot = skills.scene.foot(arm)
    turn = skills.scene.pose(task.thing)[:3, :3]
    if turn[2, 2] > UPRIGHT:
        turn = rotation_about(UP, np.arctan2(turn[1, 0], turn[0, 0]))
    for _ in range(DRAWS):
        T_goal = _in_tray(
            task, skills, rotation_about(UP, skills.rng.uniform(-np.pi, np.pi)) @ turn
        )
        leave = T_goal @ inverse(T_gripper_thing)
        if natural(leave, foot) and skills.in_reach(
            arm, raised(leave, ABOVE_M), leave, backed(leave, RETREAT_M)
        ):
            return T_goal
    raise OutOfReachError(
        f"The {arm} arm gets {task.thing.name} nowhere into the tray as it holds it."
    )


def _in_tray(task: KukaPlace, skills: Skills, turn: Matrix) -> Matrix:
    """Returns the pose (4, 4) of the thing, turned like that (3, 3), with the middle of its outline in that of the tray."""
    T_base_tray = skills.scene.pose(task.tray)
    points = task.thing.points @ turn.T
    radii = task.thing.radii[:, None]
    low = (points - radii).min(axis=0)
    high = (points + radii).max(axis=0)
    middle = np.array([*(low + high)[:2] / 2, low[2] - task.tray.thickness - DROP_M])
    return pose(T_base_tray[:3, 3] - middle, turn)


X, Y, Z = np.eye(3)
ABOVE_FLOOR = 0.01  # The bar's underside, when it is let go.
SKEW_DEG = 6.0  # By which the bar may be turned against the bin.
HAND_OVER_PACES = (
    0.8,
    2.1,
)  # Wider than others: the arms' limits already stretch the long moves of the faster episodes.


class KukaHandOverExpert(HandOverExpert[KukaHandOver]):
    """Either gripper takes one end of the bar, by two of its flats."""

    task_class = KukaHandOver
    right_along = (0.055, 0.075)
    left_along = (0.05, 0.075)
    above = 0.1
    closed = opening(0.028 - SQUEEZE_M)
    leans_deg = (-14.0, 0.0, 14.0)
    pitches_deg = (-20.0, -8.0, 4.0)
    sides_deg = (-30.0, 0.0, 30.0)
    meeting_height = 0.58
    release = opening(0.028 + 0.045)
    pad_ahead = PAD_HALF[2]
    pad_half_width = PAD_HALF[0]

    def __init__(self, paces: tuple[float, float] = HAND_OVER_PACES) -> None:
        super().__init__(paces)

    def axis(self, task: KukaHandOver, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the bar's axis and its direction."""
        return along * X, X

    def normals(self, task: KukaHandOver) -> Sequence[Vector]:
        """Returns the normals of its four flats."""
        return [Y, Z, -Y, -Z]

    def thickness(self, task: KukaHandOver) -> float:
        """Returns half its width."""
        return task.bar.width / 2

    def goal(self, task: KukaHandOver, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns the bar along the bin, just above its floor, the left gripper above it."""
        T_base_bin = skills.scene.pose(task.bin)
        skew = np.radians(skills.rng.uniform(-SKEW_DEG, SKEW_DEG)) + skills.rng.choice((0.0, np.pi))
        spot = T_base_bin[:3, 3] + UP * (task.bin.thickness + task.bar.width / 2 + ABOVE_FLOOR)
        along = rotation_about(UP, skew) @ T_base_bin[:3, 0]
        down = (
            receive.T_prop_gripper[:3, 0] - (receive.T_prop_gripper[:3, 0] @ X) * X
        )  # Where the gripper points.
        down = down / np.linalg.norm(down)
        item = np.stack([X, down, np.cross(X, down)], axis=1)
        return pose(spot, np.stack([along, -UP, np.cross(along, -UP)], axis=1) @ item.T)


class KukaBimanualPickExpert(KukaPickExpert):
    """Picks with the arm that is near."""

    task_class = KukaBimanualPick


class KukaBimanualPlaceExpert(KukaPlaceExpert):
    """Places with the arm that is near."""

    task_class = KukaBimanualPlace
