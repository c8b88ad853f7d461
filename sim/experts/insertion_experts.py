"""Experts that insert one or two blocks into a socket held in the air by the other arm.

Block and socket are taken as square bars and tubes: near an end, in any of their quarter turns.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.motion import (
    UP,
    Correction,
    Grasp,
    Move,
    backed,
    gripper_pose,
    raised,
    rotation_vector,
    twist,
)
from stringline.sim.experts.skills import CLOSING, OPENING, SETTLING, Done, ScriptedExpert, Skills
from stringline.sim.props.insertion_parts import Block, Socket
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.insertion_tasks import (
    AXIS_DISTANCE_M,
    BLOCK_LENGTH,
    DoubleInsertion,
    InsertionTask,
    SingleInsertion,
    fit,
)

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
GRASP_ATTEMPTS = 3


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

    for _ in range(GRASP_ATTEMPTS):
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

    def depth(self) -> float:
        """Returns the length of the block in the socket, metres; below 0 before the rim."""
        T_socket_block = inverse(self._scene.pose(self._socket)) @ self._scene.pose(self._block)
        return (self._socket.length + self._block.length) / 2 - abs(float(T_socket_block[0, 3]))

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
    """Aligns a held block, pushes it in and releases it; ends early if it is lost.

    A block that is in the socket already is pushed on.
    """
    alignment = Alignment(skills, arm, socket, block)
    begun = is_inside(skills, socket, block)
    if not begun:
        yield from skills.go(1.1, {arm: Move(lambda: alignment.target(-GAP))})
    yield from _push(skills, arm, block, alignment, alignment.depth() if begun else -GAP, depth)
    if not skills.scene.holds(arm, block):
        return False
    yield from skills.wait(SETTLING)
    yield from skills.grip(arm, 1.0, OPENING)
    yield from skills.back_off(arm, RETREAT)
    return True


def is_inside(skills: Skills, socket: Socket, block: Block) -> bool:
    """Returns whether the walls of the socket guide the block."""
    T_base_socket, T_base_block = skills.scene.pose(socket), skills.scene.pose(block)
    found = fit(T_base_socket, T_base_block, socket.length, block.length)
    return found.depth > INSIDE and found.axis_distance < AXIS_DISTANCE_M


def _push(
    skills: Skills, arm: str, block: Block, alignment: Alignment, now: float, depth: float
) -> Iterator[Vector]:
    """Moves the block from one depth to another; before the rim its alignment limits the speed."""
    period = 1.0 / skills.scene.env.contract.control_hz
    top = skills.rng.uniform(*PUSH_SPEEDS) / skills.pace
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
        if scene.holds(inserter.arm, block):
            yield from insert(skills, inserter.arm, task.socket, block, depth)
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


def begun_by(skills: Skills, task: InsertionTask, arm: str, prop: Prop, holder: str) -> bool:
    """Returns whether an arm holds the socket as its holder, or a block in the held socket."""
    if prop is task.socket:
        return arm == holder
    inside = any(prop is block and is_inside(skills, task.socket, block) for block in task.blocks)
    return inside and arm != holder and skills.scene.holds(holder, task.socket)


class SingleInsertionExpert(ScriptedExpert[SingleInsertion]):
    """The left arm holds the socket level; the right one aligns the block and pushes it in."""

    task_class = SingleInsertion
    from_home = True
    paces = PACES

    def keeps(self, task: SingleInsertion, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether it is the socket in the left gripper, or a block in that."""
        return begun_by(skills, task, arm, prop, "left")

    def script(self, task: SingleInsertion, skills: Skills) -> Iterator[Vector]:
        """Inserts the block, in several attempts if necessary."""
        rng = skills.rng
        along = rng.uniform(0.044, 0.048)
        stand = stand_at(skills, BarGrasp("left", along, SOCKET_CLOSED, SOCKET_PITCHES_DEG))
        inserter = BarGrasp("right", rng.uniform(0.046, 0.05), BLOCK_CLOSED)
        if skills.scene.holds("left", task.socket) and not skills.scene.holds("right", task.block):
            yield from hold_up(skills, stand, task.socket)
        yield from fill(skills, task, task.block, stand, inserter, rng.uniform(0.077, 0.08))
        yield from skills.go_home("right")


def is_seated(task: InsertionTask, skills: Skills, block: Block) -> bool:
    """Returns whether a block is seated in the socket."""
    return task.fit(skills.scene.env.physics, block).seated(block.length)


class DoubleInsertionExpert(ScriptedExpert[DoubleInsertion]):
    """Inserts one block, hands the socket over, and inserts the other block."""

    task_class = DoubleInsertion
    from_home = True
    paces = PACES

    def keeps(self, task: DoubleInsertion, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether it is the socket in the gripper of the present part, or a block in it."""
        second = is_seated(task, skills, task.first) and skills.scene.holds("right", task.socket)
        return begun_by(skills, task, arm, prop, "right" if second else "left")

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
        scene = skills.scene
        if not (is_seated(task, skills, task.first) and scene.holds("right", task.socket)):
            if scene.holds("left", task.socket) and not scene.holds("right", task.first):
                yield from hold_up(skills, left, task.socket)
            filling = fill(skills, task, task.first, left, inserting["right"], depth["right"])
            if not (yield from filling):
                return
            if not (yield from take(skills, holding["right"], task.socket, lift=0.0)):
                return
            yield from skills.grip("left", 1.0, OPENING)
            yield from skills.back_off("left", RETREAT)
        if not scene.holds("left", task.second):
            yield from hold_up(skills, right, task.socket)
        yield from fill(skills, task, task.second, right, inserting["left"], depth["left"])
        yield from skills.go_home("left")
