"""DeepMind's aloha_sim (1.0.0), where its user has installed it: tasks, physics and rewards of ALOHA 2 with meshes.

Its arms, joints, base frame and cameras are those of our own ALOHA, so a checkpoint that was
trained in our world can be measured in theirs. Images and depth are drawn by us from its physics,
at the size that was asked for and as late as its own: 0.3 s after they were captured, joints 0.1 s.
"""

import logging
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA, finger_of_opening, opening_of_finger
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import pose
from stringline.sim.rendering.opengl_context import lead_dm_control
from stringline.sim.worlds.adapter import About, Measured, PeerCamera
from stringline.sim.worlds.third_party_versions import require

logger = logging.getLogger(__name__)

PREFIX = "aloha_sim_"
VERSION = "1.0.0"
WHERE = "git+https://github.com/google-deepmind/aloha_sim@3cb9adf"
HOW = f"It is not on PyPI; install it by pip install {WHERE}"
# The defaults of its tasks.
IMAGE_DELAY_S = 0.3
JOINT_DELAY_S = 0.1
CONTROL_SECONDS = 0.02
T_BASE_WORLD = pose(
    (0.0, 0.019, -0.0299)
)  # Its table top lies at 0.0299 m, its arms stand at y = -0.019 m.
CAMERAS = {
    "overhead": "overhead_cam",
    "wrist_left": "wrist_cam_left",
    "wrist_right": "wrist_cam_right",
    "table": "worms_eye_cam",
}
VIEWS: Mapping[str, PeerCamera] = {
    mount.name: PeerCamera(CAMERAS[mount.name], mount.fovy_deg) for mount in ALOHA.cameras
}
GRIPPERS = np.array(list(ALOHA.grippers.values()))
# Its gripper in rad of the follower's servo, which it takes to be linear in the fingers' travel: of
# what is measured over the travel from closed to open pads, of commands over a wider one, so that a
# closed command squeezes.
SERVO_CLOSED = -0.06135
SERVO_OPEN = 1.5155
MEASURED_CLOSED = 0.0078
MEASURED_OPEN = 0.037
COMMANDED_CLOSED = 0.002
COMMANDED_OPEN = 0.037
# In its 16 speeds, by arm: six hinges, then both fingers.
HINGES = np.concatenate([np.arange(6), np.arange(8, 14)])
FINGERS = np.array([[6, 7], [14, 15]])
OPENINGS_PER_METRE = float(opening_of_finger(1.0) - opening_of_finger(0.0))
KEYS = ("undelayed_joints_pos", "undelayed_joints_vel")


class AlohaSim:
    """One of aloha_sim's tasks.

    Args:
        name: `aloha_sim_` and its name there in small letters, such as `aloha_sim_hand_over_banana`
            for HandOverBanana.

    Attributes:
        about: What is fixed.
        stage: 1 where its reward of now is 1, else 0.
        unstable: Whether the physics has blown up.

    Raises:
        ValueError: aloha_sim is not installed, or is another version; it has no such task.
    """

    def __init__(self, name: str) -> None:
        require("aloha_sim", "aloha_sim", VERSION, HOW)
        suite = _suite()
        by_name = {
            PREFIX + re.sub("(?<!^)([A-Z])", r"_\1", known).lower(): known
            for known in suite.TASK_FACTORIES
        }
        if name not in by_name:
            raise unknown_name("task of aloha_sim", name, by_name)
        task = by_name[name]
        # Its cameras are asked for, because only then it puts those on the wrists where they
        # belong, and are not drawn by it.
        cameras = tuple(CAMERAS.values())
        lead_dm_control()
        self._env = suite.create_task_env(
            task, time_limit=float("inf"), control_timestep=CONTROL_SECONDS, cameras=cameras
        )
        observables = self._env.task.task_observables
        for key in KEYS:
            if key not in observables:
                raise ValueError(
                    f"aloha_sim's {task} does not show {key!r}; this adapter was written for "
                    f"{VERSION}. {HOW}"
                )
        for camera in cameras:
            observables[camera].enabled = False
        self.about = About(
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
        self._seen: Mapping[str, NDArray[Any]] = {}
        self.stage = 0
        self.unstable = False

    @property
    def physics(self) -> Any:
        """Of dm_control; it is compiled anew in each episode."""
        return self._env.physics

    def begin(self, seed: int) -> None:
        """Begins the episode that `create_task_env(..., random_state=seed)` begins with its first reset."""
        self._env.random_state.seed(seed)
        self._seen = self._env.reset().observation
        self.stage = 0
        self.unstable = False

    def advance(self, action: Vector) -> None:
        """Applies joint targets (14,) for one control period."""
        targets = action.copy()
        targets[GRIPPERS] = servo_of_opening(action[GRIPPERS])
        step = self._env.step(targets)
        self._seen = step.observation
        self.stage = int(step.reward is not None and step.reward >= 1.0)
        if (
            step.last() and not self.stage
        ):  # It knows no time limit, so nothing else ends an episode.
            logger.warning(
                "The physics of %s became unstable, which counts as failed.", self.about.name
            )
            self.unstable = True
            self.physics.reset()

    def measure(self) -> Measured:
        """Returns the joints of now."""
        position = np.array(self._seen[KEYS[0]], dtype=np.float64)
        position[GRIPPERS] = opening_of_servo(position[GRIPPERS])
        speeds = np.asarray(self._seen[KEYS[1]], dtype=np.float64)
        velocity = np.insert(
            speeds[HINGES], [6, 12], OPENINGS_PER_METRE * speeds[FINGERS].mean(axis=1)
        )
        return Measured(
            position, velocity, np.array(self.physics.data.actuator_force[:14], dtype=np.float64)
        )

    def close(self) -> None:
        """Gives the physics back."""
        self._env.close()


def servo_of_opening(opening: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the commands (...) in its rad that bring the fingers to openings (...)."""
    share = (finger_of_opening(opening) - COMMANDED_CLOSED) / (COMMANDED_OPEN - COMMANDED_CLOSED)
    return SERVO_CLOSED + share * (SERVO_OPEN - SERVO_CLOSED)


def opening_of_servo(servo: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the openings (...) that its measured rad (...) stand for."""
    share = (servo - SERVO_CLOSED) / (SERVO_OPEN - SERVO_CLOSED)
    return opening_of_finger(MEASURED_CLOSED + share * (MEASURED_OPEN - MEASURED_CLOSED))


def instruction(name: str) -> str:
    """Returns what a person would say to have a task done; the task has to be built for it.

    Raises:
        ValueError: aloha_sim is not installed, or is another version; it has no such task.
    """
    peer = AlohaSim(name)
    try:
        return peer.about.instruction
    finally:
        peer.close()


def _suite() -> Any:
    suite = import_module("aloha_sim.task_suite")
    missing = [name for name in ("TASK_FACTORIES", "create_task_env") if not hasattr(suite, name)]
    if missing:
        raise ValueError(
            f"aloha_sim.task_suite has no {missing[0]!r}; this adapter was written for {VERSION}. "
            f"{HOW}"
        )
    return suite
