"""ALOHA's arms as a composer entity that speaks in the embodiment's joints."""

import numpy as np
from dm_control import composer, mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import ALOHA, ARMS, finger_of_opening, opening_of_finger
from stringline.datasets.embodiments.aloha_mjcf import bare_arms_mjcf
from stringline.datasets.embodiments.embodiment import Vector

GRIPPERS = np.array([ALOHA.grippers[arm] for arm in ARMS])
HINGES = np.array([i for i, joint in enumerate(ALOHA.joints) if joint.kind == "hinge"])
OPENINGS_PER_METRE = float(opening_of_finger(1.0) - opening_of_finger(0.0))
SIDES = ("left", "right")


class AlohaRobot(composer.Robot):
    """Both arms with the world's cameras; positions, speeds and targets are (14,) vectors in the embodiment's order."""

    def _build(self) -> None:
        self._root = bare_arms_mjcf()
        self._actuators = [self._root.find("actuator", joint.name) for joint in ALOHA.joints]
        self._hinges = [self._root.find("joint", ALOHA.joints[i].name) for i in HINGES]
        self._fingers = [self._root.find("joint", f"{arm}/{side}_finger") for arm in ARMS for side in SIDES]

    @property
    def mjcf_model(self) -> mjcf.RootElement:
        """The model to attach."""
        return self._root

    @property
    def actuators(self) -> list[mjcf.Element]:
        """In the order of the joints."""
        return self._actuators

    def shapes(self, arm: str) -> list[mjcf.Element]:
        """Returns all shapes of one arm, from its foot to its fingers."""
        return list(self._root.find("body", f"{arm}/base_link").find_all("geom"))

    def after_compile(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Looks up where the joints are in the compiled model; doing so in each step would cost more than the physics."""
        model = physics.model
        hinges, fingers = (np.array(physics.bind(joints).element_id) for joints in (self._hinges, self._fingers))
        self._hinge_q, self._finger_q = model.jnt_qposadr[hinges], model.jnt_qposadr[fingers]
        self._hinge_v, self._finger_v = model.jnt_dofadr[hinges], model.jnt_dofadr[fingers]
        self._controls = np.array(physics.bind(self._actuators).element_id)

    def positions(self, physics: mjcf.Physics) -> Vector:
        """Returns the measured joints (14,): rad, and openings of the grippers."""
        return _joined(physics.data.qpos[self._hinge_q], opening_of_finger(_per_gripper(physics.data.qpos[self._finger_q])))

    def velocities(self, physics: mjcf.Physics) -> Vector:
        """Returns the measured speeds (14,): rad/s and openings/s."""
        return _joined(physics.data.qvel[self._hinge_v], OPENINGS_PER_METRE * _per_gripper(physics.data.qvel[self._finger_v]))

    def efforts(self, physics: mjcf.Physics) -> Vector:
        """Returns what the drives exert (14,): Nm, and N of the grippers."""
        return np.array(physics.data.actuator_force[self._controls])

    def put(self, physics: mjcf.Physics, q: Vector) -> None:
        """Moves the joints (14,) at once, with their targets."""
        physics.data.qpos[self._hinge_q] = q[HINGES]
        physics.data.qpos[self._finger_q] = np.repeat(finger_of_opening(q[GRIPPERS]), len(SIDES))
        self.command(physics, q)

    def command(self, physics: mjcf.Physics, action: Vector) -> None:
        """Sets the targets (14,): rad and openings; those beyond the joints' range are held at its end."""
        target = np.clip(action, ALOHA.lower, ALOHA.upper)
        target[GRIPPERS] = finger_of_opening(target[GRIPPERS])
        physics.data.ctrl[self._controls] = target


def _per_gripper(fingers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(fingers.reshape(len(ARMS), len(SIDES)).mean(axis=1))


def _joined(hinges: NDArray[np.float64], grippers: NDArray[np.float64]) -> Vector:
    result = np.empty(len(ALOHA.joints))
    result[HINGES], result[GRIPPERS] = hinges, grippers
    return result
