"""Experts for both recesses: they take the peg, bring it over the recess and correct its pose on the way in.

The pose of the peg in the gripper and the steady errors of the joints are unknown beforehand. Over
the recess the gripper's target is moved by what the peg is measured to be off, until that is less
than the play; then the peg is pressed down softly. Where it sticks it is lifted and lowered again
beside where that was, and where it slipped in the gripper it is laid down and taken anew.

A gripper that leans by t from straight down towards one end of the lying block points t below the
horizontal when that end is down: with t between 20 and 45 degrees it keeps off the table before,
and off the base after.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.fitting import (
    ARM,
    TIPS,
    align,
    clear_of,
    lowest_tip,
    nudge,
    steady,
    swings_clear,
    tip_depth,
)
from stringline.sim.experts.grasps import UP, Grasp, backed, both_ways, gripper_pose, raised
from stringline.sim.experts.motion import Move
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import OPENING, SETTLING, Done, Skills
from stringline.sim.tasks.recess_tasks import Fmb1, Fmb2, RecessTask
from stringline.sim.tasks.success import draw_apart, gap, in_frame

ROUNDS = 6  # How often the whole is tried.
LOWERINGS = 3
PRESSES = 3
PRESS = 0.003  # The arm's joints stick; it aims that far below the floor, metres.
DROP = 0.0015  # A peg that far off the floor is let go, metres.
# Metres of the peg over the rim while travelling, and while correcting.
HOVER = 0.05
NEAR = 0.004
SIDE = 0.001  # How far beside its goal a peg that stuck is lowered again, metres.
TIP_CLEARANCE = 0.001
PACES = (
    0.8,
    1.9,
)  # Wide, since half of an episode goes by at the speed of the joints and of the gripper.
BENT = 0.25  # How far the wrist is bent at least, rad.
FALL = 0.03  # From no higher than that a peg is let fall onto the table, metres.
SPOTS = 12  # How many places to lay the peg down are considered.

RecessT = TypeVar("RecessT", bound=RecessTask)


class RecessExpert(ScriptedExpert[RecessT]):
    """Tries again from wherever the peg is, until the task is done.

    Attributes:
        lift: How high the peg is taken off the table, metres: so high that it can be turned there.
    """

    lift: float

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    @abstractmethod
    def grasps(self, task: RecessT) -> Sequence[Grasp]:
        """Returns ways to take the peg as it lies with its own z axis up."""

    def script(self, task: RecessT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (14,)."""
        for _ in range(ROUNDS):
            if task.reached(skills.scene.env.physics):
                break
            if not skills.scene.holds(ARM, task.peg):
                yield from self._take(task, skills)
            if not skills.scene.holds(ARM, task.peg):
                continue
            goal = self._goal(task, skills)
            if goal is None:
                yield from self._lay_down(task, skills)
            elif (yield from self._insert(task, skills, goal)):
                yield from self._leave(skills)
        yield from skills.go_home(ARM)

    def _take(self, task: RecessT, skills: Skills) -> Iterator[Vector]:
        """Picks the peg up in a way in which it can be inserted; where there is none, in any way."""
        T_base_peg = skills.scene.pose(task.peg)
        turns = task.peg.symmetries()
        heights = (T_base_peg[:3, :3] @ turns)[:, 2, 2]  # Of the tip of each equal frame's z axis.
        turned = [
            Grasp(
                pose(rotation=turn) @ grasp.T_prop_gripper, grasp.closed, grasp.opening, grasp.hover
            )
            for grasp in self.grasps(task)
            for turn in turns[heights > heights.max() - 0.1]
        ]
        order = (turned[int(index)] for index in skills.rng.permutation(len(turned)))
        useful = next(
            (grasp for grasp in order if self._serves(task, skills, T_base_peg, grasp)), None
        )
        yield from skills.pick(
            ARM, task.peg, [useful] if useful else turned, lift=self.lift, attempts=1
        )

    def _serves(self, task: RecessT, skills: Skills, T_base_peg: Matrix, grasp: Grasp) -> bool:
        """Says whether the peg can be taken so, and inserted when it is."""
        at = T_base_peg @ grasp.T_prop_gripper
        taking = [backed(at, grasp.hover), at, raised(at, self.lift)]
        way = skills.joints_along(ARM, *taking)
        free = way is not None and clear_of(way[1], skills.scene.table)
        return bool(free and self._goals(task, skills, inverse(grasp.T_prop_gripper), taking))

    def _goal(self, task: RecessT, skills: Skills) -> Matrix | None:
        """Returns which of the equal goals `T_board_peg` (4, 4) is reached with the least turning, None where none is."""
        goals = self._goals(task, skills, skills.scene.in_gripper(ARM, task.peg))
        rotation = (inverse(skills.scene.pose(task.board)) @ skills.scene.pose(task.peg))[:3, :3]
        return max(goals, key=lambda goal: float(np.trace(goal[:3, :3].T @ rotation)), default=None)

    def _goals(
        self, task: RecessT, skills: Skills, T_gripper_peg: Matrix, before: Sequence[Matrix] = ()
    ) -> list[Matrix]:
        """Returns the goals that are in reach with the peg so in the gripper and nothing in the way, after poses `before`."""
        T_base_board = skills.scene.pose(task.board)
        size = task.board.size
        moving = np.concatenate([TIPS, in_frame(np.eye(4), T_gripper_peg, task.peg.corners)])
        found = []
        for goal in task.goals:
            T_base_gripper = T_base_board @ goal @ inverse(T_gripper_peg)
            if lowest_tip(T_base_gripper) < T_base_board[2, 3] + size[2] + TIP_CLEARANCE:
                continue
            over = raised(T_base_gripper, task.board.recess.depth + HOVER)
            way = skills.joints_along(ARM, *before, over, T_base_gripper)
            if way is None or not clear_of(way[-1], skills.scene.table, T_base_board, size):
                continue
            start = way[-3] if before else skills.motion.q
            if steady(way, BENT) and swings_clear(start, way[-2], moving, T_base_board, size):
                found.append(goal)
        return found

    def _insert(self, task: RecessT, skills: Skills, goal: Matrix) -> Done:
        """Brings the peg into the recess, deep enough to let it go."""
        scene = skills.scene
        depth = task.board.recess.depth

        def at(height: float, offset: Vector) -> Matrix:
            return pose((*offset, height)) @ scene.pose(task.board) @ goal

        offset = np.zeros(2)
        T_over = at(depth + HOVER, offset) @ inverse(scene.in_gripper(ARM, task.peg))
        yield from skills.go(
            1.2, {ARM: Move(lambda: T_over)}
        )  # If it slips on the way, that is seen there.
        yield from skills.wait(SETTLING)
        for _ in range(LOWERINGS):
            goals = self._goals(task, skills, scene.in_gripper(ARM, task.peg))
            if not scene.holds(ARM, task.peg) or not any(
                np.array_equal(goal, other) for other in goals
            ):
                return False
            yield from align(skills, task.peg, at(depth + NEAR, offset))
            for _ in range(PRESSES):
                yield from nudge(skills, task.peg, at(-PRESS, offset), 0.6)
                yield from skills.wait(SETTLING)
                if task.depth(scene.env.physics) > depth - DROP:
                    return True
            if task.depth(scene.env.physics) > depth / 2:
                return True
            offset = skills.rng.uniform(-SIDE, SIDE, 2)
        return False

    def _leave(self, skills: Skills) -> Iterator[Vector]:
        """Lets go, and moves away backwards or upwards, as far as the arm can."""
        yield from skills.grip(ARM, 1.0, OPENING)
        T = skills.scene.gripper(ARM)
        ways = [backed(T, 0.09), raised(T, 0.08), backed(T, 0.05), raised(T, 0.05)]
        T_away = next((way for way in ways if skills.in_reach(ARM, way)), T)
        yield from skills.go(0.5, {ARM: Move(lambda: T_away, straight=True)})

    def _lay_down(self, task: RecessT, skills: Skills) -> Iterator[Vector]:
        """Lays the peg somewhere on the table; where there is no such place, lets it fall."""
        T_down = self._bed(task, skills)
        if T_down is None:
            yield from skills.grip(ARM, 1.0, OPENING)
        else:
            yield from skills.place(ARM, task.peg, lambda: T_down, above=self.lift)

    def _bed(self, task: RecessT, skills: Skills) -> Matrix | None:
        """Returns a pose for the peg on the table, or a little higher where the tips of the pads would not let it lie."""
        T_peg_gripper = inverse(skills.scene.in_gripper(ARM, task.peg))
        rotation = skills.scene.pose(task.peg)[:3, :3]
        for _ in range(SPOTS):
            spot = self._spot(task, skills)
            beds = [spot @ pose(rotation=turn) for turn in task.peg.symmetries()]
            for bed in sorted(beds, key=lambda T: -float(np.trace(T[:3, :3].T @ rotation))):
                above = skills.scene.table + TIP_CLEARANCE - lowest_tip(bed @ T_peg_gripper)
                T_down = raised(bed, max(0.0, above) + 0.001)
                at = T_down @ T_peg_gripper
                way = skills.joints_along(ARM, raised(at, self.lift), at)
                if above < FALL and way and clear_of(way[-1], skills.scene.table):
                    return T_down
        return None

    def _spot(self, task: RecessT, skills: Skills) -> Matrix:
        """Returns a pose on the table, drawn like that of the start, with room around it if there is any."""
        T_base_board = skills.scene.pose(task.board)
        board = np.array(task.board.size[:2]) / 2

        def draw() -> tuple[Matrix, Matrix]:
            x, y, yaw = (
                skills.rng.uniform(*limits) for limits in (task.peg_x, task.peg_y, task.peg_yaw_deg)
            )
            position = (x, y, skills.scene.table + task.peg.half[2])
            return pose(position, rotation_about((0.0, 0.0, 1.0), np.radians(yaw))), T_base_board

        return draw_apart(
            draw, lambda peg, on: gap(peg, task.peg.half[:2], on, board), task.least_gap
        )[0]


CLOSED = 0.2  # There the drive pushes with some 25 N against the 37 mm between the pads.
LYING_LEANS_DEG = (-25.0, -12.0, 0.0, 12.0, 25.0)
LYING_ALONG = (-0.04, 0.0, 0.04)  # Metres from the block's middle.
# How far the tips reach below the block's middle: when it is seated, they are 3.5 mm off the base.
LYING_SHORT = 0.005


class Fmb1Expert(RecessExpert[Fmb1]):
    """Inserts the block in closed loop."""

    task_class = Fmb1
    lift = 0.08

    def grasps(self, task: Fmb1) -> Sequence[Grasp]:
        """Returns ways to take the block across, from above."""
        return both_ways(
            _lying_grasp(np.radians(lean), along)
            for lean, along in product(LYING_LEANS_DEG, LYING_ALONG)
        )


def _lying_grasp(lean: float, along: float) -> Grasp:
    forwards = np.array([np.sin(lean), 0.0, -np.cos(lean)])
    T = gripper_pose((0.0, 0.0, 0.0), forwards, np.cross(UP, (1.0, 0.0, 0.0)))
    T[:3, 3] = (along, 0.0, tip_depth(T) - LYING_SHORT)
    return Grasp(T, CLOSED)


# There the drive pushes with some 25 N against the 37 mm between the pads.
UPRIGHT_LEANS_DEG = (-45.0, -37.0, -28.0, -20.0, 20.0, 28.0, 37.0, 45.0)
UPRIGHT_ALONG = (0.010, 0.018)  # Metres from the block's middle, towards the end that goes up.
UPRIGHT_SHORT = (
    0.015  # How far the tips reach below the block's middle: they stay 3.5 mm off the table.
)


class Fmb2Expert(RecessExpert[Fmb2]):
    """Turns and inserts the block in closed loop."""

    task_class = Fmb2
    lift = 0.13

    def grasps(self, task: Fmb2) -> Sequence[Grasp]:
        """Returns ways to take the block across, leaning towards either end."""
        return both_ways(
            _upright_grasp(np.radians(lean), along)
            for lean, along in product(UPRIGHT_LEANS_DEG, UPRIGHT_ALONG)
        )


def _upright_grasp(lean: float, along: float) -> Grasp:
    forwards = np.array([np.sin(lean), 0.0, -np.cos(lean)])
    T = gripper_pose((0.0, 0.0, 0.0), forwards, np.cross(UP, (1.0, 0.0, 0.0)))
    T[:3, 3] = (-np.sign(lean) * along, 0.0, tip_depth(T) - UPRIGHT_SHORT)
    return Grasp(T, CLOSED)
