"""The two tasks of gym-aloha 0.1.3 (Cadene et al., after ACT, Zhao et al. 2023) and their experts.

gym-aloha's own environment renders three images of 480x640 pixels in each step. So its tasks and
physics are stepped here, exactly as dm_control's environment does (a test compares the states bit
by bit), and images are rendered on request.

ACT's own scripts drag the grippers by a soft weld and replay the resulting joints. These experts
use no weld: they solve for the poses of the objects, wait until the measured joints have arrived,
and grasp again if an object was not lifted.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from dm_control import mujoco
from dm_control.rl.control import PhysicsError

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.gym_aloha import (
    FINGERS,
    FOVY_DEG,
    GYM_ALOHA,
    STANDING,
    T_BASE_WORLD,
    normalised_of_opening,
)
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.experts.insertion_experts import nearest_turn
from stringline.sim.experts.motion import (
    TOLERANCE,
    UP,
    Correction,
    Motion,
    Move,
    Target,
    raised,
    twist,
)
from stringline.sim.worlds.third_party_environment import (
    CameraView,
    JointMeasurement,
    TaskDescription,
    ThirdPartyEnvironment,
    check_version,
)

logger = logging.getLogger(__name__)

VERSION = "0.1.3"
HOW = 'Run: pip install "stringline[third-party]"'
WRIST_FOVY_DEG = 20.0
GRIPPERS = np.array(list(GYM_ALOHA.grippers.values()))
# In its 16 joints, by arm: the revolute joints, the left finger, and the right finger with opposite
# sign.
HINGES = np.concatenate([np.arange(6), np.arange(8, 14)])
LEFT_FINGERS = np.array([6, 14])
RIGHT_FINGERS = np.array([7, 15])


@dataclass(frozen=True)
class TaskModel:
    """A task of gym-aloha.

    Attributes:
        task: Name of the class.
        sample: Name of the function that samples the initial poses of objects.
        stages: Names of the rewards 0 to 4.
    """

    file: str
    task: str
    sample: str
    instruction: str
    stages: tuple[str, ...]


TASK_MODELS: Mapping[str, TaskModel] = {
    "gym_aloha_transfer_cube": TaskModel(
        "bimanual_viperx_transfer_cube.xml",
        "TransferCubeTask",
        "sample_box_pose",
        "pick up the red cube with the right arm and hand it over to the left arm",
        ("start", "touched", "lifted", "touched_by_left", "handed_over"),
    ),
    "gym_aloha_insertion": TaskModel(
        "bimanual_viperx_insertion.xml",
        "InsertionTask",
        "sample_insertion_pose",
        "insert the red peg into the blue socket in the air",
        ("start", "both_touched", "both_lifted", "peg_at_socket", "inserted"),
    ),
}


def instruction(name: str) -> str:
    """Returns the instruction of a task."""
    return TASK_MODELS[name].instruction


class GymAloha:
    """A task of gym-aloha; see `Adapter`.

    Raises:
        ValueError: gym-aloha is not installed or has another version.
    """

    def __init__(self, name: str) -> None:
        check_version("gym-aloha", "gym_aloha", VERSION, HOW)
        model = TASK_MODELS[name]
        self._sim = import_module("gym_aloha.tasks.sim")
        self._sample = getattr(import_module("gym_aloha.utils"), model.sample)
        assets = import_module("gym_aloha.constants").ASSETS_DIR
        self._task = getattr(self._sim, model.task)()
        self.physics: Any = mujoco.Physics.from_xml_path(str(assets / model.file))
        self.about = TaskDescription(
            name, model.instruction, model.stages, GYM_ALOHA, VIEWS, T_BASE_WORLD
        )
        self._substeps = round(1 / (self.about.control_hz * self.physics.timestep()))
        self.stage = 0
        self.unstable = False

    def begin(self, seed: int) -> None:
        """Begins the episode that gym-aloha's environment begins with that seed."""
        self._sim.BOX_POSE[0] = np.concatenate(
            [np.ravel(part) for part in _parts(self._sample(seed))]
        )
        with self.physics.reset_context():
            self._task.initialize_episode(self.physics)
        self.stage = 0
        self.unstable = False

    def advance(self, action: Vector) -> None:
        """Applies joint targets (14,) for one control period; unstable physics is reset."""
        targets = action.copy()
        targets[GRIPPERS] = normalised_of_opening(action[GRIPPERS])
        try:
            self._task.before_step(targets, self.physics)
            self.physics.step(self._substeps)
        except PhysicsError as error:
            logger.warning(
                "The physics of %s became unstable (%s); the episode counts as failed.",
                self.about.name,
                error,
            )
            self.unstable = True
            self.physics.reset()
            return
        self._task.after_step(self.physics)
        self.stage = int(self._task.get_reward(self.physics))

    def measure(self) -> JointMeasurement:
        """Returns the current joints; an opening is the distance between two fingers."""
        data = self.physics.data
        q = data.qpos[:16]
        v = data.qvel[:16]
        force = data.actuator_force
        fingers = FINGERS.opening((q[LEFT_FINGERS] - q[RIGHT_FINGERS]) / 2)
        speeds = FINGERS.openings_per_metre * (v[LEFT_FINGERS] - v[RIGHT_FINGERS]) / 2
        forces = (force[LEFT_FINGERS] - force[RIGHT_FINGERS]) / 2
        return JointMeasurement(
            _joined(q[HINGES], fingers), _joined(v[HINGES], speeds), _joined(force[HINGES], forces)
        )

    def close(self) -> None:
        """Frees the physics."""
        self.physics.free()


VIEWS: Mapping[str, CameraView] = {
    **{name: CameraView("top" if name == "overhead" else name, FOVY_DEG) for name in STANDING},
    "front_close": CameraView("front_close", FOVY_DEG),
    "wrist_left": CameraView("left_wrist", WRIST_FOVY_DEG),
    "wrist_right": CameraView("right_wrist", WRIST_FOVY_DEG),
}


def _parts(sampled: Any) -> tuple[Any, ...]:
    """Returns the sampled poses of one or two objects as a tuple."""
    return sampled if isinstance(sampled, tuple) else (sampled,)


def _joined(revolute: Vector, grippers: Vector) -> Vector:
    result = np.insert(revolute, [6, 12], grippers)
    return np.asarray(result, dtype=np.float64)


PACES = (0.9, 1.2)
Y = (0.0, 1.0, 0.0)
# From a gripper that points towards +x to one that points away from its arm.
FORWARDS: Mapping[str, Matrix] = {"left": np.eye(3), "right": np.diag([-1.0, -1.0, 1.0])}
WIDE = 0.9  # Opening before a grasp.
HOVER_M = 0.09
LIFT_M = 0.08
MEET = (0.0, 0.0, 0.25)
NEAR_M = 0.004  # The drives are weak and have much friction, so joints arrive slowly.
STEEPER_DEG = (62.0, 70.0, 80.0)  # For objects close to the arm.


def fixed(T_base_gripper: Matrix) -> Target:
    """Returns a target that does not move."""
    return lambda: T_base_gripper


class Script(ABC):
    """The joint targets (14,) of one episode, one for each control period."""

    def __init__(
        self,
        env: ThirdPartyEnvironment,
        kinematics: InverseKinematics,
        rng: np.random.Generator,
        pace: float,
    ) -> None:
        self.env = env
        self.pace = pace
        self.motion = Motion(GYM_ALOHA, kinematics, env.contract.control_hz)
        self._kinematics = kinematics
        self._prepare(rng)

    @abstractmethod
    def _prepare(self, rng: np.random.Generator) -> None:
        """Draws what varies between episodes."""

    @abstractmethod
    def run(self) -> Iterator[Vector]:
        """Yields the joint targets."""

    def reachable(
        self,
        arm: str,
        point: Vector,
        heights: Sequence[float],
        pitch_deg: float,
        yaw: float = 0.0,
    ) -> Matrix:
        """Returns a reachable orientation (3, 3) of a gripper at heights above a point (3,), m.

        The gripper points away from its arm and down, by an angle in degrees or a steeper one, and
        its pads close along y; then both are rotated by the yaw, rad.

        Raises:
            OutOfReachError: The arm cannot reach the point.
        """
        for pitch in (pitch_deg, *STEEPER_DEG):
            turned = rotation_about(UP, yaw) @ FORWARDS[arm]
            down = turned @ rotation_about(Y, np.radians(pitch))
            q = self.motion.q
            try:
                for height in heights:
                    q = self._kinematics.solve(
                        {arm: raised(pose(point, down), height)}, q, tolerance=TOLERANCE
                    )
            except OutOfReachError:
                continue
            return down
        raise OutOfReachError(
            f"The {arm} arm cannot reach the point {np.round(point, 3).tolist()} m."
        )

    def gripper(self, arm: str) -> Matrix:
        """Returns the measured pose (4, 4) of a gripper."""
        return GYM_ALOHA.forward_kinematics(self.env.joints())[arm]

    def go(self, seconds: float, moves: dict[str, Move]) -> Iterator[Vector]:
        """Moves grippers at the pace of the episode."""
        return self.motion.go(seconds * self.pace, moves)

    def settle(self, seconds: float, targets: Mapping[str, Target]) -> Iterator[Vector]:
        """Waits until all grippers are near their targets, at most `seconds`."""
        for wanted in self.motion.hold(seconds):
            away = [
                np.abs((self.gripper(arm) - target())[:3, 3]) for arm, target in targets.items()
            ]
            if np.max(away) < NEAR_M:
                return
            yield wanted


class GymAlohaExpert:
    """An expert of one task, by its script.

    The factor on the durations of an episode is drawn uniformly from the range `paces`.

    Raises:
        ValueError: The paces are out of range.
    """

    task: ClassVar[str]
    script: ClassVar[type[Script]]

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        if not 0.5 <= paces[0] <= paces[1] <= 2:
            raise ValueError(
                f"paces is {paces}; allowed: two numbers from 0.5 to 2, the smaller one first."
            )
        self._paces = paces
        self._kinematics = InverseKinematics(GYM_ALOHA)
        self._plan: Iterator[Vector] = iter(())
        self._wanted = GYM_ALOHA.home.copy()

    def reset(self, env: ThirdPartyEnvironment, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` makes episodes vary."""
        if env.task.name != self.task:
            raise ValueError(f"This expert is for {self.task!r}; the world runs {env.task.name!r}.")
        self._wanted = GYM_ALOHA.home.copy()
        self._plan = self.script(env, self._kinematics, rng, rng.uniform(*self._paces)).run()

    def act(self, env: ThirdPartyEnvironment) -> Vector:
        """Returns the next joint targets (14,)."""
        self._wanted = next(self._plan, self._wanted)
        return self._wanted


X = (1.0, 0.0, 0.0)
CUBE = "box"
HALF_M = 0.02
# The tips are 24 mm below the centre of the pads, and the table 20 mm below that of the cube.
GRASP_ABOVE_M = 0.012
CUBE_PITCHES_DEG = (50.0, 60.0)
BEFORE_M = 0.10  # Distance from the cube at which the left gripper waits.


class TransferCubeScript(Script):
    """The right gripper lifts the cube; the left one, rotated by 90 degrees, takes it over."""

    def _prepare(self, rng: np.random.Generator) -> None:
        lying = np.array([*self._cube()[:2], HALF_M])  # An episode begins with the cube in the air.
        self._down = self.reachable(
            "right", lying, (HOVER_M, GRASP_ABOVE_M), rng.uniform(*CUBE_PITCHES_DEG)
        )
        # Towards +x and horizontal; the pads close along z.
        self._quarter = rotation_about(X, np.pi / 2)
        self._meet = np.asarray(MEET) + rng.uniform(-0.02, 0.02, 3)

    def run(self) -> Iterator[Vector]:
        """Grasps the cube until it is lifted, and hands it over."""
        while True:
            yield from self._take()
            if self._lifted():
                yield from self._show()
            if self._lifted():
                break
            self.motion.grip("right", WIDE)
            yield from self.motion.go_home(0.8 * self.pace, ["right"])
        yield from self._hand_over()

    def _take(self) -> Iterator[Vector]:
        meet = self._meet
        waiting = pose(meet - (BEFORE_M + 0.02, 0.0, 0.0), self._quarter)
        self.motion.grip("right", WIDE)
        self.motion.grip("left", WIDE)
        yield from self.go(
            1.1, {"right": Move(lambda: self._above(HOVER_M)), "left": Move(lambda: waiting)}
        )
        yield from self.go(0.7, {"right": Move(lambda: self._above(GRASP_ABOVE_M), straight=True)})
        yield from self.settle(0.5, {"right": lambda: self._above(GRASP_ABOVE_M)})
        self.motion.grip("right", 0.0)
        yield from self.motion.hold(0.6 * self.pace)
        up = self._above(GRASP_ABOVE_M + LIFT_M)
        yield from self.go(0.6, {"right": Move(lambda: up, straight=True)})

    def _show(self) -> Iterator[Vector]:
        held = pose(self._meet, self._down)
        yield from self.go(1.0, {"right": Move(lambda: held)})
        yield from self.settle(0.4, {"right": lambda: held})

    def _hand_over(self) -> Iterator[Vector]:
        yield from self.go(0.5, {"left": Move(lambda: self._beside(BEFORE_M))})
        yield from self.go(0.8, {"left": Move(lambda: self._beside(0.01), straight=True)})
        yield from self.settle(0.4, {"left": lambda: self._beside(0.01)})
        self.motion.grip("left", 0.0)
        yield from self.motion.hold(0.8 * self.pace)
        self.motion.grip("right", WIDE)
        yield from self.motion.hold(0.6 * self.pace)

    def _above(self, height: float) -> Matrix:
        """Returns the pose of the right gripper at a height above the cube."""
        return raised(pose(self._cube(), self._down), height)

    def _beside(self, distance: float) -> Matrix:
        """Returns the pose of the left gripper at a distance to the left of the cube."""
        return pose(self._cube() - (distance, 0.0, 0.0), self._quarter)

    def _cube(self) -> Vector:
        return self.env.pose(CUBE)[:3, 3].copy()

    def _lifted(self) -> bool:
        return bool(self._cube()[2] > HALF_M + LIFT_M / 2)


class TransferCubeExpert(GymAlohaExpert):
    """The right gripper lifts the cube; the left one, rotated by 90 degrees, takes it over."""

    task: ClassVar[str] = "gym_aloha_transfer_cube"
    script: ClassVar[type[Script]] = TransferCubeScript


@dataclass(frozen=True)
class Piece:
    """What an arm picks up.

    Attributes:
        half_m: Half its height.
        above_m: Height of the gripper above its middle at the grasp; the tips are 24 mm further.
    """

    name: str
    half_m: float
    above_m: float


PIECES: Mapping[str, Piece] = {
    "left": Piece("socket", 0.022, 0.010),
    "right": Piece("peg", 0.010, 0.020),
}
# At flatter ones the wrist is stretched, where its joints are not determined.
PIECE_PITCHES_DEG = (62.0, 72.0)
# Distance between the middles of peg and socket: before the insertion, and when the peg has
# passed the pin, which begins 40 mm from the middle of the socket, by 10 mm.
APART_M = 0.155
INSERTED_M = 0.090
HELD_M = 0.06  # Largest distance of a held piece's middle from its gripper.
ALIGNED_M = 0.004  # The peg has 8 mm of room on each side.
ALIGN_SECONDS = 1.5
PUSH_SPEED = 0.09  # m/s at a pace of 1.


class InsertionScript(Script):
    """Each gripper lifts its piece; then the right arm pushes the peg into the socket."""

    def _prepare(self, rng: np.random.Generator) -> None:
        self._pitches_deg = {arm: rng.uniform(*PIECE_PITCHES_DEG) for arm in PIECES}
        self._down: dict[str, Matrix] = {}
        self._meet = np.asarray(MEET) + rng.uniform(-0.02, 0.02, 3)

    def run(self) -> Iterator[Vector]:
        """Lifts both pieces and inserts the peg, until it is in."""
        while True:
            yield from self._take()
            if self._lifted():
                yield from self._bring()
            while self._lifted():
                yield from self._insert()
            for arm in PIECES:
                self.motion.grip(arm, WIDE)
            yield from self.motion.go_home(0.8 * self.pace, list(PIECES))

    def _take(self) -> Iterator[Vector]:
        for arm, piece in PIECES.items():
            self.motion.grip(arm, WIDE)
            heights = np.linspace(HOVER_M, piece.above_m, 8).tolist()
            x, y, _ = self.pose(arm)[:3, 0]
            yaw = float(np.arctan(y / x))  # Either end may be in front.
            self._down[arm] = self.reachable(
                arm, self._lying(arm), heights, self._pitches_deg[arm], yaw
            )
        yield from self.go(1.1, {arm: Move(self._above(arm, HOVER_M)) for arm in PIECES})
        at = {arm: self._above(arm, piece.above_m) for arm, piece in PIECES.items()}
        yield from self.go(0.7, {arm: Move(target, straight=True) for arm, target in at.items()})
        yield from self.settle(0.5, at)
        for arm in PIECES:
            self.motion.grip(arm, 0.0)
        yield from self.motion.hold(0.6 * self.pace)
        up = {arm: fixed(raised(target(), LIFT_M)) for arm, target in at.items()}
        yield from self.go(0.6, {arm: Move(target, straight=True) for arm, target in up.items()})

    def _bring(self) -> Iterator[Vector]:
        """Holds the pieces up, on one line along x."""
        goals = {}
        for arm, side in (("left", -0.5), ("right", 0.5)):
            T_base_piece = self.pose(arm)
            where = self._meet + side * APART_M * np.eye(3)[0]
            level = pose(where, nearest_turn(T_base_piece[:3, :3]))
            goals[arm] = fixed(level @ inverse(T_base_piece) @ self.gripper(arm))
        yield from self.go(1.2, {arm: Move(goal) for arm, goal in goals.items()})

    def _insert(self) -> Iterator[Vector]:
        """Aligns the peg and pushes it in; ends early if a piece is lost."""
        alignment = _Alignment(self)
        first = fixed(alignment.target(APART_M))
        yield from self.go(0.6, {"right": Move(first)})
        period = 1.0 / self.env.contract.control_hz
        distance = APART_M
        waited = 0.0
        while distance > INSERTED_M and self._lifted():
            if alignment.update() < ALIGNED_M or waited > ALIGN_SECONDS:
                distance -= PUSH_SPEED / self.pace * period
            waited += period
            yield self.motion.step("right", alignment.target(distance))
        yield from self.motion.hold(0.4)

    def _above(self, arm: str, height: float) -> Target:
        """Returns the target of a gripper at a height above its piece."""

        def target() -> Matrix:
            T_base_piece = self.pose(arm)
            return raised(pose(T_base_piece[:3, 3], self._down[arm]), height)

        return target

    def _lying(self, arm: str) -> Vector:
        """Returns the middle of a piece on the table; an episode begins with both in the air."""
        return np.array([*self.pose(arm)[:2, 3], PIECES[arm].half_m])

    def pose(self, arm: str) -> Matrix:
        """Returns the pose (4, 4) of the piece of an arm."""
        return self.env.pose(PIECES[arm].name)

    def _lifted(self) -> bool:
        """Returns whether both pieces are in the air and at their grippers."""
        return all(
            self.pose(arm)[2, 3] > piece.half_m + LIFT_M / 2
            and np.linalg.norm((self.pose(arm) - self.gripper(arm))[:3, 3]) < HELD_M
            for arm, piece in PIECES.items()
        )


class _Alignment:
    """Keeps the peg on the axis of the socket, in spite of weak drives.

    The pose of the peg in the gripper is that of the beginning.
    """

    def __init__(self, script: InsertionScript) -> None:
        self._script = script
        self._correction = Correction()
        self._T_peg_gripper = inverse(script.pose("right")) @ script.gripper("right")

    def update(self) -> float:
        """Adds the present error to the correction; returns its distance, m."""
        T_socket_peg = self._relative()
        on_axis = pose((T_socket_peg[0, 3], 0.0, 0.0), nearest_turn(T_socket_peg[:3, :3]))
        error = twist(inverse(on_axis) @ T_socket_peg)
        self._correction.update(error)
        return float(np.linalg.norm(error[:3]))

    def target(self, distance: float) -> Matrix:
        """Returns the pose of the right gripper for a distance between both middles, m."""
        square = nearest_turn(self._relative()[:3, :3])
        T_base_peg = self._script.pose("left") @ pose((distance, 0.0, 0.0), square)
        return T_base_peg @ self._correction.transform @ self._T_peg_gripper

    def _relative(self) -> Matrix:
        return inverse(self._script.pose("left")) @ self._script.pose("right")


class InsertionExpert(GymAlohaExpert):
    """Each gripper lifts its piece; then the right arm pushes the peg into the socket."""

    task: ClassVar[str] = "gym_aloha_insertion"
    script: ClassVar[type[Script]] = InsertionScript
