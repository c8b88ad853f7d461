"""Exact positioning of a held peg, and checks that arm and gripper collide with nothing."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.sim.experts.motion import Move
from stringline.sim.experts.skills import SETTLING, Skills
from stringline.sim.props.insertion_parts import Peg
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

    A block of lengths (3,), metres, stands on its origin; None: there is only the table.
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
