"""Experts that insert one or two blocks into a socket held in the air by the other arm."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.bar_grasps import FORWARDS, BarGrasp, axis_towards, nearest_turn, take
from stringline.sim.experts.correction import Correction, rotation_vector
from stringline.sim.experts.grasps import UP
from stringline.sim.experts.motion import Move
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import OPENING, SETTLING, Done, Skills
from stringline.sim.props.insertion_parts import Block, Socket
from stringline.sim.tasks.insertion_tasks import (
    BLOCK_LENGTH,
    DoubleInsertion,
    InsertionTask,
    SingleInsertion,
)

# Waiting for alignment and grips takes much of an episode; see `ScriptedExpert.paces`.
PACES = (0.8, 1.6)
# Openings at which the drive pushes with about 25 N.
SOCKET_CLOSED = 0.3
BLOCK_CLOSED = 0.1
# Pitches of the grippers, degrees. At steeper ones the cameras on both would collide, with the
# socket before the block is inserted, and with the block while both hold the socket.
SOCKET_PITCHES_DEG = (60.0, 63.0)
BLOCK_PITCHES_DEG = (60.0, 66.0, 72.0)
GAP = 0.025  # Gap between block and socket during the alignment, metres.
# Metres and radians off the axis at which a block waits before the rim; up to half of them it moves
# at full speed.
ALLOWED = (0.0025, 0.03)
INSIDE = 0.004  # Depth from which on the walls guide the block, metres.
# m/s, drawn evenly; m/s^2.
PUSH_SPEEDS = (0.045, 0.09)
PUSH_ACCELERATION = 0.25
PUSH_SECONDS = 9.0
RETREAT = 0.1  # Distance by which a gripper backs off after the release, metres.
ASIDE = 0.1  # Distance of the held socket from the middle of the table, metres.
ATTEMPTS = 4
# Distance between the rim and the grasped point of a block, whose pads reach 14 mm towards the rim.
FINGERS = 0.016


class Alignment:
    """Keeps a block that `arm` holds on the axis of a socket, in spite of friction and weight.

    The other arm holds the socket.
    """

    def __init__(self, skills: Skills, arm: str, socket: Socket, block: Block) -> None:
        self._scene = skills.scene
        self._arm = arm
        self._socket = socket
        self._block = block
        self._correction = Correction()
        self._T_block_gripper = inverse(self._scene.in_gripper(arm, block))
        self._T_base_socket = self._scene.pose(socket)

    def error(self) -> Vector:
        """Returns the block's error (6,): (0, y, z) in metres and a rotation vector."""
        T_socket_block = inverse(self._scene.pose(self._socket)) @ self._scene.pose(self._block)
        turn = T_socket_block[:3, :3] @ nearest_turn(T_socket_block[:3, :3]).T
        return np.concatenate([[0.0], T_socket_block[1:3, 3], rotation_vector(turn)])

    def quality(self) -> float:
        """Returns 1 for a block on the axis, falling to 0 for one that would touch the rim."""
        error = self.error()
        worst = max(np.linalg.norm(error[:3]) / ALLOWED[0], np.linalg.norm(error[3:]) / ALLOWED[1])
        return float(np.clip(2.0 - 2.0 * worst, 0.0, 1.0))

    def target(self, depth: float) -> Matrix:
        """Returns the gripper's pose (4, 4) for a depth in metres, once per control period."""
        if self._scene.holds(self._arm, self._block):
            self._T_block_gripper = inverse(self._scene.in_gripper(self._arm, self._block))
            self._correction.update(self.error())
        if depth < 0:  # Inside, the block would push away the socket that it follows.
            self._T_base_socket = self._scene.pose(self._socket)
        socket = self._T_base_socket
        outwards = float(axis_towards(socket, -FORWARDS[self._arm]) @ socket[:3, 0])
        along = outwards * (self._socket.length / 2 + self._block.length / 2 - depth)
        square = nearest_turn(socket[:3, :3].T @ self._scene.pose(self._block)[:3, :3])
        T_base_rim = socket @ pose((along, 0.0, 0.0))
        return (
            T_base_rim @ self._correction.transform @ pose(rotation=square) @ self._T_block_gripper
        )


def insert(skills: Skills, arm: str, socket: Socket, block: Block, depth: float) -> Done:
    """Aligns a held block, pushes it in and releases it; ends early if it is lost."""
    alignment = Alignment(skills, arm, socket, block)
    yield from skills.go(1.1, {arm: Move(lambda: alignment.target(-GAP))})
    yield from _push(skills, arm, block, alignment, depth)
    if not skills.scene.holds(arm, block):
        return False
    yield from skills.wait(SETTLING)
    yield from skills.grip(arm, 1.0, OPENING)
    yield from skills.back_off(arm, RETREAT)
    return True


def _push(
    skills: Skills, arm: str, block: Block, alignment: Alignment, depth: float
) -> Iterator[Vector]:
    """Moves the block from the gap to its depth; before the rim its alignment limits the speed."""
    period = 1.0 / skills.scene.env.contract.control_hz
    top = skills.rng.uniform(*PUSH_SPEEDS) / skills.pace
    now = -GAP
    speed = 0.0
    end = skills.scene.env.time + PUSH_SECONDS
    while now < depth - 5e-4 and skills.scene.env.time < end and skills.scene.holds(arm, block):
        allowed = min(top, np.sqrt(2 * PUSH_ACCELERATION * (depth - now)))
        wanted = allowed * (alignment.quality() if now < INSIDE else 1.0)
        most = PUSH_ACCELERATION * period
        speed += float(np.clip(wanted - speed, -most, most))
        now = min(now + speed * period, depth)
        yield skills.motion.step(arm, alignment.target(now))


@dataclass(frozen=True)
class Stand:
    """A pose in which an arm holds the socket up for the other one.

    Attributes:
        where: (3,), position of the socket's middle, metres.
        yaw: Yaw of the socket from the arm's forward direction, rad.
    """

    holder: BarGrasp
    where: Vector
    yaw: float


def stand_at(skills: Skills, holder: BarGrasp) -> Stand:
    """Draws a stand on the arm's own side, where the other arm has room."""
    middle = np.array([0.0, 0.0, 0.17 + 0.6 * skills.scene.table]) - ASIDE * FORWARDS[holder.arm]
    where = middle + skills.rng.uniform(-1.0, 1.0, 3) * (0.02, 0.04, 0.02)
    return Stand(holder, where, np.radians(skills.rng.uniform(-10.0, 10.0)))


def fill(
    skills: Skills,
    task: InsertionTask,
    block: Block,
    stand: Stand,
    inserter: BarGrasp,
    depth: float,
) -> Done:
    """Inserts a block while the other arm holds the socket; returns whether it is seated.

    The arm of the stand holds the socket, or takes it first. `depth` is the length of the block
    inside the socket at the end, metres.
    """
    scene = skills.scene
    holder = stand.holder
    for _ in range(ATTEMPTS):
        if not scene.holds(holder.arm, task.socket):
            yield from take(skills, holder, task.socket)
            yield from hold_up(skills, stand, task.socket)
        if task.fit(scene.env.physics, block).seated(block.length):
            return True
        if (yield from take(skills, inserter, block)):
            yield from insert(skills, inserter.arm, task.socket, block, depth)
    return False


def hold_up(skills: Skills, stand: Stand, socket: Socket) -> Iterator[Vector]:
    """Brings the held socket to its stand, level."""
    seconds = skills.rng.uniform(1.0, 2.0)
    level = rotation_about(UP, stand.yaw)
    square = nearest_turn(level.T @ skills.scene.pose(socket)[:3, :3])
    T_base_socket = pose(stand.where, level @ square)
    yield from skills.carry(stand.holder.arm, socket, lambda: T_base_socket, seconds=seconds)


class SingleInsertionExpert(ScriptedExpert[SingleInsertion]):
    """The left arm holds the socket level; the right one aligns the block and pushes it in."""

    task_class = SingleInsertion
    from_home = True
    paces = PACES

    def script(self, task: SingleInsertion, skills: Skills) -> Iterator[Vector]:
        """Inserts the block, in several attempts if necessary."""
        rng = skills.rng
        along = rng.uniform(0.044, 0.048)
        stand = stand_at(skills, BarGrasp("left", along, SOCKET_CLOSED, SOCKET_PITCHES_DEG))
        inserter = BarGrasp("right", rng.uniform(0.046, 0.05), BLOCK_CLOSED)
        yield from fill(skills, task, task.block, stand, inserter, rng.uniform(0.077, 0.08))
        yield from skills.go_home("right")


class DoubleInsertionExpert(ScriptedExpert[DoubleInsertion]):
    """Inserts one block, hands the socket over, and inserts the other block."""

    task_class = DoubleInsertion
    from_home = True
    paces = PACES

    def script(self, task: DoubleInsertion, skills: Skills) -> Iterator[Vector]:
        """Inserts one block, hands the socket over in the air, and inserts the other one."""
        rng = skills.rng
        holding = {
            arm: BarGrasp(arm, rng.uniform(0.062, 0.066), SOCKET_CLOSED, SOCKET_PITCHES_DEG)
            for arm in ARMS
        }
        inserting = {
            arm: BarGrasp(arm, rng.uniform(0.031, 0.033), BLOCK_CLOSED, BLOCK_PITCHES_DEG)
            for arm in ARMS
        }
        depth = {arm: part.along + BLOCK_LENGTH / 2 - FINGERS for arm, part in inserting.items()}
        left, right = (stand_at(skills, holding[arm]) for arm in ARMS)
        filling = fill(skills, task, task.first, left, inserting["right"], depth["right"])
        if not (yield from filling):
            return
        if not (yield from take(skills, holding["right"], task.socket, lift=0.0)):
            return
        yield from skills.grip("left", 1.0, OPENING)
        yield from skills.back_off("left", RETREAT)
        yield from hold_up(skills, right, task.socket)
        yield from fill(skills, task, task.second, right, inserting["left"], depth["left"])
        yield from skills.go_home("left")
