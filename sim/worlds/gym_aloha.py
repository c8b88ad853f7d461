"""The two tasks of gym-aloha 0.1.3 (Cadene et al., after ACT, Zhao et al. 2023).

gym-aloha's own environment renders three images of 480x640 pixels in each step. So its tasks and
physics are stepped here, exactly as dm_control's environment does (a test compares the states bit
by bit), and images are rendered on request.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

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
from stringline.sim.worlds.third_party_environment import (
    CameraView,
    JointMeasurement,
    TaskDescription,
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
