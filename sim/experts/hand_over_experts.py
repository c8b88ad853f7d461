"""Experts that hand over the banana and the pen."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA, ARMS, ROOTS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.grasps import FORWARDS, OPEN, UP, Grasp, backed
from stringline.sim.experts.hand_over_base import HandOverExpert
from stringline.sim.experts.motion import Motion, Move
from stringline.sim.experts.scene import Scene
from stringline.sim.experts.skills import CLOSING, Skills
from stringline.sim.tasks.hand_over_tasks import HandOverBanana, HandOverPen

# Metres from the banana's middle: the right gripper takes it at +, the left one at -.
GRASP_ALONG = 0.042
# The pads' middle stops that far short of the axis, metres, so that the tips keep off the table.
GRASP_SHORT = 0.006
HOMEWARDS = 0.8  # Seconds.
# Opening at which the drive pushes with about 25 N against the 36 mm between the pads.
CLOSED = 0.2
# Height of the banana's underside above the bowl at the release, metres.
BANANA_ABOVE_FLOOR = 0.008
PEN_ABOVE_FLOOR = 0.006  # Height of the pen's lower end above the holder's floor at the release.


class HandOverBananaExpert:
    """Hands the banana over in one way, at one pace.

    The right gripper comes straight down over one third of the banana, aligned with it and wide
    open. Both grippers meet level over the middle of the table, with the banana upright; the left
    one takes the upper third, and lays the banana low into the bowl. Targets are read from the
    world until the banana is in the gripper. From a varied start the arms go home first, since the
    way to a target need not be in reach.
    """

    def __init__(self) -> None:
        self._kinematics = InverseKinematics(ALOHA)
        self._plan: Iterator[Vector] = iter(())
        self._last = ALOHA.home.copy()

    def reset(self, env: TaskEnvironment, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` varies where the grippers meet.

        Raises:
            ValueError: The environment runs another task.
        """
        if not isinstance(env.task, HandOverBanana):
            raise ValueError(
                f"This expert does {HandOverBanana.name!r}; the environment runs {env.task.name!r}."
            )
        motion = Motion(ALOHA, self._kinematics, env.contract.control_hz, start=env.start)
        self._last = motion.q.copy()
        script = self._script(_BananaTargets(env, env.task), motion, rng)
        home = iter(()) if env.task.starts_at_home else motion.go_home(HOMEWARDS, ARMS)
        self._plan = chain(home, script)

    def act(self, env: TaskEnvironment) -> Vector:
        """Returns the next joint targets (14,); after the end of the script the last ones."""
        self._last = next(self._plan, self._last)
        return self._last

    def _script(
        self, targets: "_BananaTargets", motion: Motion, rng: np.random.Generator
    ) -> Iterator[Vector]:
        # Over a high table they meet closer to it, because the arms do not reach much higher.
        meeting = np.array([0.0, 0.0, 0.27 + 0.3 * targets.table])
        meeting = meeting + rng.uniform(-1, 1, 3) * (0.02, 0.03, 0.02)
        hover = rng.uniform(0.08, 0.11)
        back = rng.uniform(0.08, 0.11)
        T_right_meeting = _gripper(meeting - GRASP_ALONG * UP, -FORWARDS, UP)
        yield from self._pick(targets, motion, hover)
        yield from self._meet(targets, motion, T_right_meeting, back)
        yield from self._lay_down(targets, motion, T_right_meeting, hover)

    def _pick(self, targets: "_BananaTargets", motion: Motion, hover: float) -> Iterator[Vector]:
        motion.grip("right", OPEN)
        above = Move(lambda: backed(targets.from_above(), hover))
        yield from motion.go(1.1, {"right": above})
        yield from motion.go(0.5, {"right": Move(targets.from_above, straight=True)})
        yield from motion.hold(0.15)
        motion.grip("right", CLOSED)
        yield from motion.hold(CLOSING)

    def _meet(
        self, targets: "_BananaTargets", motion: Motion, T_right_meeting: Matrix, back: float
    ) -> Iterator[Vector]:
        T_left_expected = _gripper(T_right_meeting[:3, 3] + 2 * GRASP_ALONG * UP, FORWARDS, UP)
        T_lifted = targets.gripper("right")
        T_lifted[2, 3] += 0.06
        motion.grip("left", OPEN)
        yield from motion.go(0.36, {"right": Move(lambda: T_lifted, straight=True)})
        moves = {
            "right": Move(lambda: T_right_meeting),
            "left": Move(lambda: backed(T_left_expected, back)),
        }
        yield from motion.go(1.0, moves)
        yield from motion.hold(0.1)
        yield from motion.go(0.5, {"left": Move(targets.level, straight=True)})
        yield from motion.hold(0.15)
        motion.grip("left", CLOSED)
        yield from motion.hold(CLOSING)

    def _lay_down(
        self, targets: "_BananaTargets", motion: Motion, T_right_meeting: Matrix, hover: float
    ) -> Iterator[Vector]:
        motion.grip("right", OPEN)
        yield from motion.hold(0.24)
        T_down = targets.over_bowl()
        T_above = T_down.copy()
        T_above[2, 3] += hover
        away = Move(lambda: backed(T_right_meeting, 0.16), straight=True)
        yield from motion.go(1.0, {"left": Move(lambda: T_above), "right": away})
        yield from motion.go(0.5, {"left": Move(lambda: T_down, straight=True)})
        yield from motion.hold(0.15)
        motion.grip("left", OPEN)
        yield from motion.hold(0.3)
        T_home = ALOHA.forward_kinematics(ALOHA.home)["right"]
        leave = {"left": Move(lambda: T_above, straight=True), "right": Move(lambda: T_home)}
        yield from motion.go(0.6, leave)


class _BananaTargets(Scene):
    """Targets of the grippers, read from the world."""

    def __init__(self, env: TaskEnvironment, task: HandOverBanana) -> None:
        super().__init__(env, task)
        self._banana = task.banana
        self._bowl = task.bowl

    def from_above(self) -> Matrix:
        """Returns the right gripper's pose over its third: pointing down, z along the banana."""
        point, direction = self._third(GRASP_ALONG)
        return backed(_gripper(point, -UP, -direction), GRASP_SHORT)

    def level(self) -> Matrix:
        """Returns the left gripper's pose at its third, pointing away from its robot."""
        point, direction = self._third(-GRASP_ALONG)
        return backed(_gripper(point, FORWARDS, -direction), GRASP_SHORT)

    def over_bowl(self) -> Matrix:
        """Returns the left gripper's pose with the banana along x, just above the bowl's floor."""
        T_gripper_banana = self.in_gripper("left", self._banana)
        height = self._bowl.thickness + self._banana.radius + BANANA_ABOVE_FLOOR
        flat = np.stack([[0.0, -1.0, 0.0], -FORWARDS, -UP], axis=1)
        middle = self.pose(self._bowl)[:3, 3] + UP * height
        return pose(middle, flat) @ inverse(T_gripper_banana)

    def _third(self, along: float) -> tuple[Vector, Vector]:
        T_base_banana = self.pose(self._banana)
        point = self._banana.axis_point(np.array(along))
        direction = T_base_banana[:3, :3] @ self._banana.axis_direction(along)
        return T_base_banana[:3, :3] @ point + T_base_banana[:3, 3], direction


def _gripper(position: Vector, forwards: Vector, third_axis: Vector) -> Matrix:
    """Returns a gripper's pose from its position, its x axis and its approximate z axis."""
    z = third_axis - (third_axis @ forwards) * forwards
    z = z / np.linalg.norm(z)
    return pose(position, np.stack([forwards, np.cross(z, forwards), z], axis=1))


class VariedHandOverBananaExpert(HandOverExpert[HandOverBanana]):
    """Hands the banana over; either gripper takes one third of it, across its bend."""

    task_class = HandOverBanana
    right_along = (0.034, 0.05)
    left_along = (0.034, 0.05)
    above = 0.1
    closed = CLOSED
    leans_deg = (-25.0, 0.0, 25.0)
    pitches_deg = (-25.0, -10.0, 5.0)
    sides_deg = (0.0,)
    usual_pitch_deg = -10.0

    def axis(self, task: HandOverBanana, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the banana's axis and its direction."""
        return task.banana.axis_point(np.array(along)), task.banana.axis_direction(along)

    def normals(self, task: HandOverBanana) -> Sequence[Vector]:
        """Returns both directions across the banana's bend: it lies flat."""
        return [UP, -UP]

    def thickness(self, task: HandOverBanana) -> float:
        """Returns the banana's radius."""
        return task.banana.radius

    def goal(self, task: HandOverBanana, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns a pose of the banana, flat just above the bowl, below the left gripper."""
        height = task.bowl.thickness + task.banana.radius + BANANA_ABOVE_FLOOR
        spot = skills.scene.pose(task.bowl)[:3, 3] + UP * height
        turn = rotation_about(UP, skills.rng.uniform(-np.pi, np.pi))
        if receive.T_prop_gripper[2, 0] > 0:  # The gripper would come from below.
            turn = turn @ np.diag([1.0, -1.0, -1.0])
        centre = task.banana.points[:, :2].mean(axis=0)
        return pose(spot - turn @ np.array([*centre, 0.0]), turn)


class HandOverPenExpert(HandOverExpert[HandOverPen]):
    """Hands the pen over; both grippers take it close to its middle, by its flats."""

    task_class = HandOverPen
    right_along = (0.022, 0.034)
    left_along = (0.032, 0.046)
    above = 0.14
    closed = 0.0
    leans_deg = (-14.0, 0.0, 14.0)
    pitches_deg = (-30.0, -15.0, 0.0)
    sides_deg = (-60.0, 0.0, 60.0)
    usual_pitch_deg = 0.0

    def axis(self, task: HandOverPen, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the pen's axis and its direction."""
        return np.array([0.0, along, 0.0]), np.array([0.0, 1.0, 0.0])

    def normals(self, task: HandOverPen) -> Sequence[Vector]:
        """Returns the normals of the pen's six flats."""
        return [rotation_about((0.0, 1.0, 0.0), angle) @ UP for angle in np.arange(6) * np.pi / 3]

    def thickness(self, task: HandOverPen) -> float:
        """Returns half the pen's width across the flats."""
        return task.pen.radius

    def goal(self, task: HandOverPen, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns a pose of the pen, upright in the holder, the left gripper pointing outwards."""
        height = task.holder.thickness + task.pen.length / 2 + PEN_ABOVE_FLOOR
        spot = skills.scene.pose(task.holder)[:3, 3] + UP * height
        away = spot[:2] - ROOTS["left"][:2, 3]
        yaw = np.arctan2(away[1], away[0]) + skills.rng.uniform(-0.6, 0.6)
        ahead = receive.T_prop_gripper[:3, 0] - (receive.T_prop_gripper[:3, 0] @ upwards) * upwards
        ahead = ahead / np.linalg.norm(ahead)
        heading = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        item = np.stack([ahead, np.cross(upwards, ahead), upwards], axis=1)
        return pose(spot, np.stack([heading, np.cross(UP, heading), UP], axis=1) @ item.T)
