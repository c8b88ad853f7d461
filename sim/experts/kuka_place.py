"""A scripted expert that puts a thing into the tray."""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.rigid import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.grasps import UP, backed, raised
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.experts.thing_grasps import GAP_M, holder, natural, take
from stringline.sim.tasks.kuka_place import KukaPlace

LIFTS_M = (0.08, 0.13)
ABOVE_M, DROP_M, RETREAT_M = 0.09, 0.003, 0.1
ROOM_M = 0.035  # By which the pads open around the thing; all the way, fingers would meet the rim.
ROUNDS, DRAWS = 6, 60
PACES = (0.8, 1.9)  # Wider than others: the arm's limits already stretch the long moves of the faster episodes.
UPRIGHT = 0.85  # A thing that stands less than that far from upright is let go upright.


class KukaPlaceExpert(ScriptedExpert[KukaPlace]):
    """Varies how the thing is taken, how it is turned in the tray, and its pace."""

    task_class = KukaPlace

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def script(self, task: KukaPlace, skills: Skills) -> Iterator[Vector]:
        """Brings the thing to the tray, again from wherever it has fallen."""
        arms = task.embodiment.arms
        for _ in range(ROUNDS):
            with suppress(OutOfReachError):
                yield from self._once(task, skills)
            if task.reached(skills.scene.env.physics) and holder(skills, task.thing) is None:
                yield from skills.wait(0.6)
            for arm in arms:
                skills.motion.grip(arm, 1.0)
            yield from skills.go_home(*arms)

    def _once(self, task: KukaPlace, skills: Skills) -> Iterator[Vector]:
        yield from take(skills, task.thing, skills.rng.uniform(*LIFTS_M))
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
        T_goal = _in_tray(task, skills, rotation_about(UP, skills.rng.uniform(-np.pi, np.pi)) @ turn)
        leave = T_goal @ inverse(T_gripper_thing)
        if natural(leave, foot) and skills.in_reach(arm, raised(leave, ABOVE_M), leave, backed(leave, RETREAT_M)):
            return T_goal
    raise OutOfReachError(f"The {arm} arm gets {task.thing.name} nowhere into the tray as it holds it.")


def _in_tray(task: KukaPlace, skills: Skills, turn: Matrix) -> Matrix:
    """Returns the pose (4, 4) of the thing, turned like that (3, 3), with the middle of its outline in that of the tray."""
    T_base_tray = skills.scene.pose(task.tray)
    points, radii = task.thing.points @ turn.T, task.thing.radii[:, None]
    low, high = (points - radii).min(axis=0), (points + radii).max(axis=0)
    middle = np.array([*(low + high)[:2] / 2, low[2] - task.tray.thickness - DROP_M])
    return pose(T_base_tray[:3, 3] - middle, turn)
