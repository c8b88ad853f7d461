"""gym-aloha's two tasks (0.1.3; Cadene et al., after ACT, Zhao et al. 2023), with its physics, reward and seeds.

Its environment draws three images of 480x640 pixels in each step, whatever is asked of it. So its
task and its physics are stepped here as dm_control's own environment steps them, and drawn by us. A
test compares the states, bit by bit.
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
from stringline.sim.worlds.adapter import About, Measured, PeerCamera
from stringline.sim.worlds.third_party_versions import require

logger = logging.getLogger(__name__)

VERSION = "0.1.3"
HOW = 'Install it by pip install "stringline[peers]".'
WRIST_FOVY_DEG = 20.0
GRIPPERS = np.array(list(GYM_ALOHA.grippers.values()))
# In its joint vector of 16, by arm: the hinges, then the left finger and the right one, which
# counts backwards.
HINGES = np.concatenate([np.arange(6), np.arange(8, 14)])
LEFT_FINGERS = np.array([6, 14])
RIGHT_FINGERS = np.array([7, 15])


@dataclass(frozen=True)
class Kind:
    """One of its tasks.

    Attributes:
        file: Of the model.
        task: Name of the class.
        sample: Name of the function that draws where things lie.
        instruction: What a person would say.
        stages: What its reward of 0 to 4 says.
    """

    file: str
    task: str
    sample: str
    instruction: str
    stages: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "gym_aloha_transfer_cube": Kind(
        "bimanual_viperx_transfer_cube.xml",
        "TransferCubeTask",
        "sample_box_pose",
        "pick up the red cube with the right arm and hand it over to the left arm",
        ("start", "touched", "lifted", "touched_by_left", "handed_over"),
    ),
    "gym_aloha_insertion": Kind(
        "bimanual_viperx_insertion.xml",
        "InsertionTask",
        "sample_insertion_pose",
        "insert the red peg into the blue socket in the air",
        ("start", "both_touched", "both_lifted", "peg_at_socket", "inserted"),
    ),
}


class GymAloha:
    """One of gym-aloha's tasks.

    Attributes:
        about: What is fixed.
        physics: Of dm_control.
        stage: Its reward of now, 0 to 4.
        unstable: Whether the physics has blown up.

    Raises:
        ValueError: gym-aloha is not installed, or in another version.
    """

    def __init__(self, name: str) -> None:
        require("gym-aloha", "gym_aloha", VERSION, HOW)
        kind = KINDS[name]
        self._sim = import_module("gym_aloha.tasks.sim")
        self._draw = getattr(import_module("gym_aloha.utils"), kind.sample)
        assets = import_module("gym_aloha.constants").ASSETS_DIR
        self._task = getattr(self._sim, kind.task)()
        self.physics: Any = mujoco.Physics.from_xml_path(str(assets / kind.file))
        self.about = About(name, kind.instruction, kind.stages, GYM_ALOHA, VIEWS, T_BASE_WORLD)
        self._substeps = round(1 / (self.about.control_hz * self.physics.timestep()))
        self.stage = 0
        self.unstable = False

    def begin(self, seed: int) -> None:
        """Begins the episode that its own environment begins with that seed."""
        self._sim.BOX_POSE[0] = np.concatenate(
            [np.ravel(part) for part in _parts(self._draw(seed))]
        )
        with self.physics.reset_context():
            self._task.initialize_episode(self.physics)
        self.stage = 0
        self.unstable = False

    def advance(self, action: Vector) -> None:
        """Applies joint targets (14,) for one control period; after a blow-up the world is back at its start."""
        targets = action.copy()
        targets[GRIPPERS] = normalised_of_opening(action[GRIPPERS])
        try:
            self._task.before_step(targets, self.physics)
            self.physics.step(self._substeps)
        except PhysicsError as error:
            logger.warning(
                "The physics of %s became unstable (%s), which counts as failed.",
                self.about.name,
                error,
            )
            self.unstable = True
            self.physics.reset()
            return
        self._task.after_step(self.physics)
        self.stage = int(self._task.get_reward(self.physics))

    def measure(self) -> Measured:
        """Returns the joints of now: openings are what is between the two fingers of a hand."""
        data = self.physics.data
        q = data.qpos[:16]
        v = data.qvel[:16]
        force = data.actuator_force
        fingers = FINGERS.opening((q[LEFT_FINGERS] - q[RIGHT_FINGERS]) / 2)
        speeds = FINGERS.openings_per_metre * (v[LEFT_FINGERS] - v[RIGHT_FINGERS]) / 2
        forces = (force[LEFT_FINGERS] - force[RIGHT_FINGERS]) / 2
        return Measured(
            _joined(q[HINGES], fingers), _joined(v[HINGES], speeds), _joined(force[HINGES], forces)
        )

    def close(self) -> None:
        """Gives the physics back."""
        self.physics.free()


VIEWS: Mapping[str, PeerCamera] = {
    **{name: PeerCamera("top" if name == "overhead" else name, FOVY_DEG) for name in STANDING},
    "front_close": PeerCamera("front_close", FOVY_DEG),
    "wrist_left": PeerCamera("left_wrist", WRIST_FOVY_DEG),
    "wrist_right": PeerCamera("right_wrist", WRIST_FOVY_DEG),
}


def _parts(drawn: Any) -> tuple[Any, ...]:
    """Returns the poses that were drawn, of one thing or of two."""
    return drawn if isinstance(drawn, tuple) else (drawn,)


def _joined(hinges: Vector, grippers: Vector) -> Vector:
    result = np.insert(hinges, [6, 12], grippers)
    return np.asarray(result, dtype=np.float64)
