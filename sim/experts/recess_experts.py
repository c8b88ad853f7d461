"""Experts of both recesses: they insert the peg in closed loop.

The pose of the peg in the gripper and the steady errors of the joints are unknown beforehand. Over
the recess the measured error of the peg is added to the gripper's target until it is less than the
play; then the peg is pressed down softly. A peg that sticks is lifted and lowered again beside that
place. A peg that slipped in the gripper is laid down and taken anew. Arm and gripper collide with
nothing on the way.

A gripper that leans by t from straight down towards one end of the lying block points t below the
horizontal when that end is down: with t between 20 and 45 degrees it keeps off the table before the
turn and off the base after it.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.motion import UP, Grasp, Move, backed, both_ways, gripper_pose, raised
from stringline.sim.experts.skills import OPENING, SETTLING, Done, ScriptedExpert, Skills
from stringline.sim.props.insertion_parts import Peg
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.placement import box_gap, draw_apart
from stringline.sim.tasks.recess_tasks import Fmb1, Fmb2, RecessTask
from stringline.sim.tasks.success import in_frame

ARM = "right"
CORRECTIONS = 6
PLAY = 0.001  # Largest sideways error of a corner, metres.
# Largest distance between the commanded and the measured gripper, metres; beyond it commands start
# anew from the measured one.
WINDUP = 0.03
# Outer corners of open pads and fingers in the frame of the gripper, metres.
TIPS = np.array(
    [
        (x, y, z)
        for y in (-0.052, 0.052)
        for x, z in ((0.0154, 0.0125), (0.0154, -0.0125), (-0.0038, 0.017), (-0.0038, -0.011))
    ]
)
# Capsules of the arm that must not collide: all but the foot, the shoulder, and the fingers, whose
# tips are known better.
WATCHED = [
    index
    for index, mount in enumerate(ALOHA.capsule_mounts)
    if mount.link > 0 and not mount.per_opening.any()
]
CLEARANCE = 0.004
SWING_CLEARANCE = 0.015  # Moving arms lag behind their targets by up to a centimetre.
WRIST = next(
    index for index, joint in enumerate(ALOHA.joints) if joint.name == f"{ARM}/wrist_angle"
)


def nudge(skills: Skills, peg: Peg, T_base_goal: Matrix, seconds: float) -> Iterator[Vector]:
    """Moves the gripper's target by the peg's measured error from its goal (4, 4).

    Steady errors of the joints do not matter. If the new target is out of reach, as after a slip,
    nothing moves.
    """
    commanded = ALOHA.forward_kinematics(skills.motion.q)[ARM]
    measured = skills.scene.gripper(ARM)
    wound_up = np.linalg.norm(commanded[:3, 3] - measured[:3, 3]) > WINDUP
    T_target = T_base_goal @ inverse(skills.scene.pose(peg)) @ (measured if wound_up else commanded)
    if skills.in_reach(ARM, T_target):
        yield from skills.go(seconds, {ARM: Move(lambda: T_target, straight=True)})


def align(skills: Skills, peg: Peg, T_base_goal: Matrix) -> Iterator[Vector]:
    """Moves the peg until its corners are at their goal, sideways to a millimetre."""
    for _ in range(CORRECTIONS):
        yield from nudge(skills, peg, T_base_goal, 0.35)
        yield from skills.wait(SETTLING)
        error = sideways_error(skills.scene.pose(peg), T_base_goal, peg)
        if not skills.scene.holds(ARM, peg) or error < PLAY:
            break


def sideways_error(T_base_peg: Matrix, T_base_goal: Matrix, peg: Peg) -> float:
    """Returns the largest error of a corner along x or y, metres."""
    corners, wanted = (in_frame(np.eye(4), T, peg.corners) for T in (T_base_peg, T_base_goal))
    return float(np.abs(corners - wanted)[:, :2].max())


def lowest_tip(T_base_gripper: Matrix) -> float:
    """Returns the height of the lowest point of an open gripper's fingers, metres."""
    return float(T_base_gripper[2, 3]) - tip_depth(T_base_gripper)


def tip_depth(T_base_gripper: Matrix) -> float:
    """Returns the depth of the open fingers below the gripper's frame, metres."""
    return float(-(TIPS @ T_base_gripper[2, :3]).min())


def steady(way: Sequence[Vector], margin: float) -> bool:
    """Returns whether the wrist stays bent to one side, by a margin in rad, at all joints (14,).

    A straight wrist is singular: forearm and gripper then turn about one axis, and small moves need
    wide turns of both.
    """
    bends = np.array([q[WRIST] for q in way])
    return bool((bends > margin).all() or (bends < -margin).all())


def swings_clear(
    q_from: Vector, q_to: Vector, points: Matrix, T_base_block: Matrix, size: ArrayLike
) -> bool:
    """Returns whether points of the gripper keep 15 mm off a block on a straight way of the joints.

    Joints are (14,), points (n, 3) in the gripper's frame, and the lengths of the block (3,),
    metres. The block stands on its origin.
    """
    reach = np.asarray(size) / (2.0, 2.0, 1.0) + SWING_CLEARANCE
    for share in np.linspace(0.0, 1.0, 9):
        T_base_gripper = ALOHA.forward_kinematics(q_from + share * (q_to - q_from))[ARM]
        there = np.abs(in_frame(T_base_block, T_base_gripper, points))
        if (there < reach).all(axis=1).any():
            return False
    return True


def clear_of(
    q: Vector, table: float, T_base_block: Matrix | None = None, size: ArrayLike = (0.0, 0.0, 0.0)
) -> bool:
    """Returns whether the arm at joints (14,), without its fingers, keeps 4 mm off table and block.

    A block of lengths (3,), metres, stands on its origin; if None, there is only the table.
    """
    capsules = [capsule for capsule in ALOHA.capsules(q) if capsule.arm == ARM]
    for capsule in (capsules[index] for index in WATCHED):
        points = capsule.start + np.linspace(0.0, 1.0, 9)[:, None] * (capsule.end - capsule.start)
        if points[:, 2].min() < table + capsule.radius + CLEARANCE:
            return False
        if T_base_block is not None:
            half = np.asarray(size) / 2
            centred = in_frame(T_base_block, np.eye(4), points) - (0.0, 0.0, half[2])
            outside = np.linalg.norm(np.maximum(np.abs(centred) - half, 0.0), axis=1)
            if outside.min() < capsule.radius + CLEARANCE:
                return False
    return True


ROUNDS = 6
LOWERINGS = 3
PRESSES = 3
# Lengths in metres.
PRESS = 0.003  # Depth of the target below the floor, against the friction of the joints.
DROP = 0.0015  # Height above the floor at which a peg is released.
HOVER = 0.05  # Height of the peg above the rim while it travels,
NEAR = 0.004  # and while its pose is corrected.
SIDE = 0.001  # Largest distance from its goal at which a peg that stuck is lowered again.
TIP_CLEARANCE = 0.001
FALL = 0.03  # Largest height above the table from which a peg is dropped.
BENT = 0.25  # Smallest angle of the wrist, rad.
SPOTS = 12  # Number of places considered to lay the peg down.
CLOSED = 0.2  # Opening at which the drive pushes with some 25 N against the 37 mm of the peg.
# Grasps of the lying peg: leans, points along it from its middle, and depth of the tips below its
# middle. Those of the seated peg are 3.5 mm off the base.
LYING_LEANS_DEG = (-25.0, -12.0, 0.0, 12.0, 25.0)
LYING_ALONG = (-0.04, 0.0, 0.04)
LYING_DEPTH = 0.005
# Grasps of the peg that is to be turned upright: along towards the end that goes up; the tips are
# 3.5 mm off the table.
TURNING_LEANS_DEG = (-45.0, -37.0, -28.0, -20.0, 20.0, 28.0, 37.0, 45.0)
TURNING_ALONG = (0.010, 0.018)
TURNING_DEPTH = 0.015

RecessT = TypeVar("RecessT", bound=RecessTask)


class RecessExpert(ScriptedExpert[RecessT]):
    """Inserts the peg in closed loop, again from wherever it is, until the task is done.

    The peg is lifted by `lift`, metres: enough to turn it there.
    """

    from_home = True

    paces = (0.8, 1.9)
    lift: float

    @abstractmethod
    def grasps(self, task: RecessT) -> Sequence[Grasp]:
        """Returns the grasps of the peg as it lies with its own z axis up."""

    def keeps(self, task: RecessT, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether the right arm holds the peg."""
        return arm == ARM and prop is task.peg

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
        """Picks the peg up by a grasp with which it can be inserted, or else by any other one."""
        T_base_peg = skills.scene.pose(task.peg)
        turns = task.peg.symmetries()
        heights = (T_base_peg[:3, :3] @ turns)[:, 2, 2]  # Of the tips of the z axes.
        turned = [
            replace(grasp, T_prop_gripper=pose(rotation=turn) @ grasp.T_prop_gripper)
            for grasp in self.grasps(task)
            for turn in turns[heights > heights.max() - 0.1]
        ]
        order = skills.ordered_grasps(ARM, T_base_peg, turned)
        useful = (grasp for grasp in order if self._serves(task, skills, T_base_peg, grasp))
        grasp = next(useful, None)
        grasps = [grasp] if grasp else turned
        yield from skills.pick(ARM, task.peg, grasps, lift=self.lift, attempts=1)

    def _serves(self, task: RecessT, skills: Skills, T_base_peg: Matrix, grasp: Grasp) -> bool:
        """Returns whether the peg can be grasped so and then inserted."""
        at = T_base_peg @ grasp.T_prop_gripper
        taking = [backed(at, grasp.hover), at, raised(at, self.lift)]
        way = skills.joints_along(ARM, *taking)
        free = way is not None and clear_of(way[1], skills.scene.table)
        return bool(free and self._goals(task, skills, inverse(grasp.T_prop_gripper), taking))

    def _goal(self, task: RecessT, skills: Skills) -> Matrix | None:
        """Returns the reachable goal `T_board_peg` (4, 4) with the smallest rotation, or None."""
        goals = self._goals(task, skills, skills.scene.in_gripper(ARM, task.peg))
        rotation = (inverse(skills.scene.pose(task.board)) @ skills.scene.pose(task.peg))[:3, :3]
        return max(goals, key=lambda goal: float(np.trace(goal[:3, :3].T @ rotation)), default=None)

    def _goals(
        self, task: RecessT, skills: Skills, T_gripper_peg: Matrix, before: Sequence[Matrix] = ()
    ) -> list[Matrix]:
        """Returns the goals in reach, without a collision, for a held peg, after poses `before`."""
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
        """Brings the peg into the recess, deep enough to be released."""
        scene = skills.scene
        depth = task.board.recess.depth

        def at(height: float, offset: Vector) -> Matrix:
            return pose((*offset, height)) @ scene.pose(task.board) @ goal

        offset = np.zeros(2)
        T_over = at(depth + HOVER, offset) @ inverse(scene.in_gripper(ARM, task.peg))
        yield from skills.go(1.2, {ARM: Move(lambda: T_over)})  # A slip is corrected there.
        yield from skills.wait(SETTLING)
        for number in range(LOWERINGS):
            goals = self._goals(task, skills, scene.in_gripper(ARM, task.peg))
            possible = any(np.array_equal(goal, other) for other in goals)
            if not scene.holds(ARM, task.peg) or not possible:
                return False
            yield from align(skills, task.peg, at(depth + NEAR, offset))
            for _ in range(PRESSES):
                yield from nudge(skills, task.peg, at(-PRESS, offset), 0.6)
                yield from skills.wait(SETTLING)
                if task.depth(scene.env.physics) > depth - DROP:
                    return True
            if task.depth(scene.env.physics) > depth / 2:
                return True
            skills.attempt(number + 1)
            offset = skills.rng.uniform(-SIDE, SIDE, 2)
        return False

    def _leave(self, skills: Skills) -> Iterator[Vector]:
        """Releases the peg, and moves away backwards or upwards, as far as the arm can."""
        yield from skills.grip(ARM, 1.0, OPENING)
        T = skills.scene.gripper(ARM)
        ways = [backed(T, 0.09), raised(T, 0.08), backed(T, 0.05), raised(T, 0.05)]
        T_away = next((way for way in ways if skills.in_reach(ARM, way)), T)
        yield from skills.go(0.5, {ARM: Move(lambda: T_away, straight=True)})

    def _lay_down(self, task: RecessT, skills: Skills) -> Iterator[Vector]:
        """Lays the peg somewhere on the table, or drops it if no place is in reach."""
        T_down = self._bed(task, skills)
        if T_down is None:
            yield from skills.grip(ARM, 1.0, OPENING)
        else:
            yield from skills.place(ARM, task.peg, lambda: T_down, above=self.lift)

    def _bed(self, task: RecessT, skills: Skills) -> Matrix | None:
        """Returns a pose of the peg on the table, higher if the pads' tips would touch it."""
        T_peg_gripper = inverse(skills.scene.in_gripper(ARM, task.peg))
        rotation = skills.scene.pose(task.peg)[:3, :3]
        for number in range(SPOTS):
            skills.attempt(number + 1)
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
        """Draws a pose on the table as at the start, if possible with room around it."""
        T_base_board = skills.scene.pose(task.board)
        board = np.array(task.board.size[:2]) / 2

        def draw() -> tuple[Matrix, Matrix]:
            ranges = (task.peg_x, task.peg_y, task.peg_yaw_deg)
            x, y, yaw = (skills.rng.uniform(*limits) for limits in ranges)
            position = (x, y, skills.scene.table + task.peg.half[2])
            return pose(position, rotation_about(UP, np.radians(yaw))), T_base_board

        def space(T_peg: Matrix, T_board: Matrix) -> float:
            return box_gap(T_peg, task.peg.half[:2], T_board, board)

        return draw_apart(draw, space, task.least_gap)[0]


class Fmb1Expert(RecessExpert[Fmb1]):
    """Inserts the lying block."""

    task_class = Fmb1
    lift = 0.08

    def grasps(self, task: Fmb1) -> Sequence[Grasp]:
        """Returns grasps across the block, from above."""
        leans = np.radians(LYING_LEANS_DEG)
        ways = product(leans, LYING_ALONG)
        return both_ways(_leaning_grasp(lean, along, LYING_DEPTH) for lean, along in ways)


class Fmb2Expert(RecessExpert[Fmb2]):
    """Turns the block upright and inserts it."""

    task_class = Fmb2
    lift = 0.13

    def grasps(self, task: Fmb2) -> Sequence[Grasp]:
        """Returns grasps across the block, leaning towards either end."""
        leans = np.radians(TURNING_LEANS_DEG)
        ways = product(leans, TURNING_ALONG)
        return both_ways(
            _leaning_grasp(lean, -np.sign(lean) * along, TURNING_DEPTH) for lean, along in ways
        )


def _leaning_grasp(lean: float, along: float, depth: float) -> Grasp:
    """Returns a grasp across the block, leaning along it by rad, with tips below its middle."""
    forwards = np.array([np.sin(lean), 0.0, -np.cos(lean)])
    T = gripper_pose((0.0, 0.0, 0.0), forwards, np.cross(UP, (1.0, 0.0, 0.0)))
    T[:3, 3] = (along, 0.0, tip_depth(T) - depth)
    return Grasp(T, CLOSED)
