"""Tasks, physics and rewards of DeepMind's aloha_sim 1.0.0, ALOHA 2 with meshes, if installed.

Arms, joints, base frame and cameras are those of Stringline's ALOHA, so a checkpoint that was
trained in Stringline's world can be evaluated there. Images and depth are rendered here from its
physics, with aloha_sim's delays: 0.3 s for images and 0.1 s for joints.
"""

import logging
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA, finger_of_opening, opening_of_finger
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import pose
from stringline.sim.rendering.opengl_context import use_egl_in_dm_control
from stringline.sim.worlds.third_party_environment import (
    CameraView,
    JointMeasurement,
    TaskDescription,
    check_version,
)
from stringline.sim.worlds.world_registry import ALOHA_SIM

logger = logging.getLogger(__name__)

VERSION = "1.0.0"
WHERE = "git+https://github.com/google-deepmind/aloha_sim@3cb9adf"
HOW = f"It is not on PyPI. Run: pip install {WHERE}"
# The defaults of its tasks.
IMAGE_DELAY_S = 0.3
JOINT_DELAY_S = 0.1
CONTROL_SECONDS = 0.02
# Its table top is at z = 0.0299 m, and its arms are at y = -0.019 m.
T_BASE_WORLD = pose((0.0, 0.019, -0.0299))
CAMERAS = {
    "overhead": "overhead_cam",
    "wrist_left": "wrist_cam_left",
    "wrist_right": "wrist_cam_right",
    "table": "worms_eye_cam",
}
VIEWS: Mapping[str, CameraView] = {
    mount.name: CameraView(CAMERAS[mount.name], mount.fovy_deg) for mount in ALOHA.cameras
}
GRIPPERS = np.array(list(ALOHA.grippers.values()))
# Its grippers are in rad of the follower's servo, linear in the travel of the fingers. Measurements
# use the travel from closed to open pads, commands a wider one, so that a closed command squeezes.
SERVO_CLOSED = -0.06135
SERVO_OPEN = 1.5155
MEASURED_CLOSED = 0.0078
MEASURED_OPEN = 0.037
COMMANDED_CLOSED = 0.002
COMMANDED_OPEN = 0.037
# In its 16 speeds, by arm: six revolute joints, then both fingers.
HINGES = np.concatenate([np.arange(6), np.arange(8, 14)])
FINGERS = np.array([[6, 7], [14, 15]])
OPENINGS_PER_METRE = float(opening_of_finger(1.0) - opening_of_finger(0.0))
KEYS = ("undelayed_joints_pos", "undelayed_joints_vel")


class AlohaSim:
    """A task of aloha_sim; see `Adapter`.

    Args:
        name: `aloha_sim_` and the task in snake case, such as `aloha_sim_hand_over_banana` for
            HandOverBanana.

    Raises:
        ValueError: aloha_sim is not installed or has another version, or the task is unknown.
    """

    def __init__(self, name: str) -> None:
        check_version("aloha_sim", "aloha_sim", VERSION, HOW)
        suite = _suite()
        by_name = {
            ALOHA_SIM + re.sub("(?<!^)([A-Z])", r"_\1", known).lower(): known
            for known in suite.TASK_FACTORIES
        }
        if name not in by_name:
            raise unknown_name("task of aloha_sim", name, by_name)
        task = by_name[name]
        # aloha_sim places the cameras of the wrists only if they are requested; it renders none.
        cameras = tuple(CAMERAS.values())
        use_egl_in_dm_control()
        self._env = suite.create_task_env(
            task, time_limit=float("inf"), control_timestep=CONTROL_SECONDS, cameras=cameras
        )
        observables = self._env.task.task_observables
        for key in KEYS:
            if key not in observables:
                raise ValueError(
                    f"aloha_sim's {task} lacks the observable {key!r}; Stringline needs "
                    f"{VERSION}. {HOW}"
                )
        for camera in cameras:
            observables[camera].enabled = False
        self.about = TaskDescription(
            name,
            str(self._env.task.get_instruction()),
            ("start", "success"),
            ALOHA,
            VIEWS,
            T_BASE_WORLD,
            1.0 / CONTROL_SECONDS,
            IMAGE_DELAY_S,
            JOINT_DELAY_S,
        )
        self._observation: Mapping[str, NDArray[Any]] = {}
        self.stage = 0
        self.unstable = False

    @property
    def physics(self) -> Any:
        """The dm_control physics, a new one in each episode."""
        return self._env.physics

    def begin(self, seed: int) -> None:
        """Begins the episode of the first reset of `create_task_env(..., random_state=seed)`."""
        self._env.random_state.seed(seed)
        self._observation = self._env.reset().observation
        self.stage = 0
        self.unstable = False

    def advance(self, action: Vector) -> None:
        """Applies joint targets (14,) for one control period."""
        targets = action.copy()
        targets[GRIPPERS] = servo_of_opening(action[GRIPPERS])
        step = self._env.step(targets)
        self._observation = step.observation
        self.stage = int(step.reward is not None and step.reward >= 1.0)
        # Without a time limit, only unstable physics ends an episode.
        if step.last() and not self.stage:
            logger.warning(
                "The physics of %s became unstable; the episode counts as failed.", self.about.name
            )
            self.unstable = True
            self.physics.reset()

    def measure(self) -> JointMeasurement:
        """Returns the current joints."""
        position = np.array(self._observation[KEYS[0]], dtype=np.float64)
        position[GRIPPERS] = opening_of_servo(position[GRIPPERS])
        speeds = np.asarray(self._observation[KEYS[1]], dtype=np.float64)
        velocity = np.insert(
            speeds[HINGES], [6, 12], OPENINGS_PER_METRE * speeds[FINGERS].mean(axis=1)
        )
        return JointMeasurement(
            position, velocity, np.array(self.physics.data.actuator_force[:14], dtype=np.float64)
        )

    def close(self) -> None:
        """Frees the physics."""
        self._env.close()


def servo_of_opening(opening: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the servo commands (...) in rad for openings (...)."""
    share = (finger_of_opening(opening) - COMMANDED_CLOSED) / (COMMANDED_OPEN - COMMANDED_CLOSED)
    return SERVO_CLOSED + share * (SERVO_OPEN - SERVO_CLOSED)


def opening_of_servo(servo: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the openings (...) of measured servo positions (...) in rad."""
    share = (servo - SERVO_CLOSED) / (SERVO_OPEN - SERVO_CLOSED)
    return opening_of_finger(MEASURED_CLOSED + share * (MEASURED_OPEN - MEASURED_CLOSED))


def instruction(name: str) -> str:
    """Returns the instruction of a task, for which the task is built."""
    task = AlohaSim(name)
    try:
        return task.about.instruction
    finally:
        task.close()


def _suite() -> Any:
    suite = import_module("aloha_sim.task_suite")
    missing = [name for name in ("TASK_FACTORIES", "create_task_env") if not hasattr(suite, name)]
    if missing:
        raise ValueError(
            f"aloha_sim.task_suite has no {missing[0]!r}; Stringline needs {VERSION}. {HOW}"
        )
    return suite
