"""Experts that insert one or two blocks into a socket held in the air by the other arm."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.sim.experts.bar_grasps import (
    FORWARDS,
    Part,
    axis_towards,
    nearest_turn,
    present,
    take,
)
from stringline.sim.experts.correction import Correction, rotation_vector
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

PACES = (
    0.8,
    1.6,
    # Wider than others', because a good part of an episode is spent waiting for alignment and for
    # grips.
)
# Openings at which the drive pushes with about 25 N.
SOCKET_CLOSED = 0.3
BLOCK_CLOSED = 0.1
GAP = 0.025  # Between block and socket while they are being aligned, metres.
ALLOWED = (
    0.0025,
    0.03,
    # Metres and radians off the axis at which a block waits before the rim; at half of it, it need
    # not.
)
INSIDE = 0.004  # Metres from where on the walls guide it.
# m/s, drawn evenly; m/s^2.
PUSH_SPEEDS = (0.045, 0.09)
PUSH_ACCELERATION = 0.25
PUSH_SECONDS = 9.0
RETREAT = 0.1  # Metres that a gripper backs off when it has let go.
ASIDE = 0.1  # How far from the table's middle the socket is held up, metres.
ATTEMPTS = 4


class Alignment:
    """Keeps a held block on the axis of a socket: what friction and weight take away from the arm's way is added to its target.

    Args:
        skills: Of the episode.
        arm: That holds the block.
        socket: Held by the other arm.
        block: To be inserted.
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
        """Returns how far (6,) the block is off the socket's axis, in its frame: (0, y, z) in metres and a rotation vector."""
        T_socket_block = inverse(self._scene.pose(self._socket)) @ self._scene.pose(self._block)
        turn = T_socket_block[:3, :3] @ nearest_turn(T_socket_block[:3, :3]).T
        return np.concatenate([[0.0], T_socket_block[1:3, 3], rotation_vector(turn)])

    def quality(self) -> float:
        """Returns 1 for a block on the axis, falling to 0 for one that would meet the rim."""
        error = self.error()
        worst = max(np.linalg.norm(error[:3]) / ALLOWED[0], np.linalg.norm(error[3:]) / ALLOWED[1])
        return float(np.clip(2.0 - 2.0 * worst, 0.0, 1.0))

    def target(self, depth: float) -> Matrix:
        """Returns the gripper's pose (4, 4) for a depth of the block in the socket, metres; asked once per control period."""
        if self._scene.holds(self._arm, self._block):
            self._T_block_gripper = inverse(self._scene.in_gripper(self._arm, self._block))
            self._correction.update(self.error())
        if depth < 0:  # Inside, the block would push away the socket that it follows.
            self._T_base_socket = self._scene.pose(self._socket)
        socket = self._T_base_socket
        outwards = float(axis_towards(socket, -FORWARDS[self._arm]) @ socket[:3, 0])
        along = outwards * (self._socket.length / 2 + self._block.length / 2 - depth)
        square = nearest_turn(socket[:3, :3].T @ self._scene.pose(self._block)[:3, :3])
        return (
            socket
            @ pose((along, 0.0, 0.0))
            @ self._correction.transform
            @ pose(rotation=square)
            @ self._T_block_gripper
        )


def insert(skills: Skills, arm: str, socket: Socket, block: Block, depth: float) -> Done:
    """Brings the block that an arm holds before the socket, aligns it, pushes it in and lets go; ends early if it is lost."""
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
    """Moves the block from the gap to its depth, before the rim only as fast as it is well aligned."""
    period = 1.0 / skills.scene.env.contract.control_hz
    top = skills.rng.uniform(*PUSH_SPEEDS) / skills.pace
    now = -GAP
    speed = 0.0
    end = skills.scene.env.time + PUSH_SECONDS
    while now < depth - 5e-4 and skills.scene.env.time < end and skills.scene.holds(arm, block):
        allowed = min(top, np.sqrt(2 * PUSH_ACCELERATION * (depth - now)))
        wanted = allowed * (alignment.quality() if now < INSIDE else 1.0)
        speed += float(
            np.clip(wanted - speed, -PUSH_ACCELERATION * period, PUSH_ACCELERATION * period)
        )
        now = min(now + speed * period, depth)
        yield skills.motion.step(arm, alignment.target(now))


@dataclass(frozen=True)
class Stand:
    """How an arm holds the socket up for the other one.

    Attributes:
        holder: The arm's part.
        where: (3,), of the socket's middle, metres.
        yaw: How far it is turned from where the arm looks, rad.
    """

    holder: Part
    where: Vector
    yaw: float


def stand_at(skills: Skills, holder: Part) -> Stand:
    """Returns a place, drawn at random, where an arm holds the socket up: on its own side, so that the other one has room."""
    middle = np.array([0.0, 0.0, 0.17 + 0.6 * skills.scene.table]) - ASIDE * FORWARDS[holder.arm]
    where = middle + skills.rng.uniform(-1.0, 1.0, 3) * (0.02, 0.04, 0.02)
    return Stand(holder, where, np.radians(skills.rng.uniform(-10.0, 10.0)))


def fill(
    skills: Skills, task: InsertionTask, block: Block, stand: Stand, inserter: Part, depth: float
) -> Done:
    """Has one arm hold the socket and the other one insert a block, as often as it takes, and says whether it is seated.

    Args:
        skills: Of the episode.
        task: Whose socket it is.
        block: To be inserted.
        stand: Of the arm that holds the socket already, or takes it now.
        inserter: Part of the arm that takes the block.
        depth: How much of the block is to be in the socket, metres.
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
    """Brings the socket that an arm holds to where it is to be held up."""
    yield from present(
        skills,
        stand.holder.arm,
        socket,
        stand.where,
        stand.yaw,
        seconds=skills.rng.uniform(1.0, 2.0),
    )


SOCKET_PITCHES_DEG = (
    60.0,
    63.0,
)  # Steeper, the cameras on both grippers would meet before the block is in.


class SingleInsertionExpert(ScriptedExpert[SingleInsertion]):
    """The left arm takes the socket and holds it level; the right one takes the block, aligns it and pushes it in."""

    task_class = SingleInsertion

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def script(self, task: SingleInsertion, skills: Skills) -> Iterator[Vector]:
        """Does what is missing until the block is seated, or has been tried often enough."""
        rng = skills.rng
        stand = stand_at(
            skills, Part("left", rng.uniform(0.044, 0.048), SOCKET_CLOSED, SOCKET_PITCHES_DEG)
        )
        inserter = Part("right", rng.uniform(0.046, 0.05), BLOCK_CLOSED)
        yield from fill(skills, task, task.block, stand, inserter, rng.uniform(0.077, 0.08))
        yield from skills.go_home("right")


# How far from the rim the point stays where a gripper holds a block: its pads reach 14 mm towards
# the rim.
FINGERS = 0.016
BLOCK_PITCHES_DEG = (60.0, 66.0, 72.0)
# Steeper, the cameras on both grippers would meet while both hold it.


class DoubleInsertionExpert(ScriptedExpert[DoubleInsertion]):
    """The left arm holds the socket while the right one inserts a block; the right one takes it over; both swap roles."""

    task_class = DoubleInsertion

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def script(self, task: DoubleInsertion, skills: Skills) -> Iterator[Vector]:
        """Inserts one block, hands the socket over in the air, and inserts the other one."""
        rng = skills.rng
        holding = {
            arm: Part(arm, rng.uniform(0.062, 0.066), SOCKET_CLOSED, SOCKET_PITCHES_DEG)
            for arm in ARMS
        }
        inserting = {
            arm: Part(arm, rng.uniform(0.031, 0.033), BLOCK_CLOSED, BLOCK_PITCHES_DEG)
            for arm in ARMS
        }
        depth = {arm: part.along + BLOCK_LENGTH / 2 - FINGERS for arm, part in inserting.items()}
        left, right = (stand_at(skills, holding[arm]) for arm in ARMS)
        if not (
            yield from fill(skills, task, task.first, left, inserting["right"], depth["right"])
        ):
            return
        if not (yield from take(skills, holding["right"], task.socket, lift=0.0)):
            return
        yield from skills.grip("left", 1.0, OPENING)
        yield from skills.back_off("left", RETREAT)
        yield from hold_up(skills, right, task.socket)
        yield from fill(skills, task, task.second, right, inserting["left"], depth["left"])
        yield from skills.go_home("left")
