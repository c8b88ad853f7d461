"""Arms as a composer entity, with positions and targets in the joints of their embodiment."""

import numpy as np
from dm_control import composer, mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.fingers import FingerTravel

SIDES = ("left", "right")


class Robot(composer.Entity):
    """All arms and the world's cameras; vectors (J,) are in the order of the embodiment."""

    def _build(
        self, embodiment: Embodiment, model: mjcf.RootElement, fingers: FingerTravel
    ) -> None:
        """Wraps a model whose elements have the names of the embodiment's joints.

        Each gripper has slides `left_finger` and `right_finger`.
        """
        self.embodiment = embodiment
        self._root = model
        self._travel = fingers
        self._gripper_places = np.array([embodiment.grippers[arm] for arm in embodiment.arms])
        self._hinge_places = np.array(
            [i for i, joint in enumerate(embodiment.joints) if joint.kind == "hinge"]
        )
        self._openings_per_metre = fingers.openings_per_metre
        self._actuators = [model.find("actuator", joint.name) for joint in embodiment.joints]
        self._hinges = [model.find("joint", embodiment.joints[i].name) for i in self._hinge_places]
        self._fingers = [
            model.find("joint", f"{arm}/{side}_finger") for arm in embodiment.arms for side in SIDES
        ]

    @property
    def mjcf_model(self) -> mjcf.RootElement:
        """The model to attach."""
        return self._root

    def shapes(self, arm: str) -> list[mjcf.Element]:
        """Returns all shapes of one arm, from its foot to its fingers."""
        return list(self._root.find("body", f"{arm}/base_link").find_all("geom"))

    def after_compile(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Looks up the joints' indices; in each step that would cost more than the physics."""
        model = physics.model
        hinges, fingers = (
            np.array(physics.bind(joints).element_id) for joints in (self._hinges, self._fingers)
        )
        self._hinge_q = model.jnt_qposadr[hinges]
        self._finger_q = model.jnt_qposadr[fingers]
        self._hinge_v = model.jnt_dofadr[hinges]
        self._finger_v = model.jnt_dofadr[fingers]
        self._controls = np.array(physics.bind(self._actuators).element_id)
        self._effort_limits = model.actuator_forcerange[self._controls].copy()

    def positions(self, physics: mjcf.Physics) -> Vector:
        """Returns the measured joints (J,): rad, and openings of the grippers."""
        openings = self._travel.opening(self._per_gripper(physics.data.qpos[self._finger_q]))
        return self._joined(physics.data.qpos[self._hinge_q], openings)

    def velocities(self, physics: mjcf.Physics) -> Vector:
        """Returns the measured speeds (J,): rad/s and openings/s."""
        fingers = self._per_gripper(physics.data.qvel[self._finger_v])
        return self._joined(physics.data.qvel[self._hinge_v], self._openings_per_metre * fingers)

    def efforts(self, physics: mjcf.Physics) -> Vector:
        """Returns the efforts of the drives (J,): Nm, and N of the grippers."""
        return np.array(physics.data.actuator_force[self._controls])

    def limit_efforts(self, physics: mjcf.Physics, largest: Vector) -> None:
        """Limits the efforts of the drives (J,), Nm and N of the grippers, below their own limits.

        The force of a gripper is the sum of those of its two pads.
        """
        limits = np.clip(self._effort_limits, -largest[:, None], largest[:, None])
        physics.model.actuator_forcerange[self._controls] = limits

    def put(self, physics: mjcf.Physics, q: Vector) -> None:
        """Sets joints (J,) and their targets at once."""
        physics.data.qpos[self._hinge_q] = q[self._hinge_places]
        physics.data.qpos[self._finger_q] = np.repeat(
            self._travel.travel(q[self._gripper_places]), len(SIDES)
        )
        self.command(physics, q)

    def command(self, physics: mjcf.Physics, action: Vector) -> None:
        """Sets the targets (J,), rad and openings, clipped to the joints' ranges."""
        target = np.clip(action, self.embodiment.lower, self.embodiment.upper)
        target[self._gripper_places] = self._travel.travel(target[self._gripper_places])
        physics.data.ctrl[self._controls] = target

    def _per_gripper(self, fingers: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(fingers.reshape(len(self._gripper_places), len(SIDES)).mean(axis=1))

    def _joined(self, hinges: NDArray[np.float64], grippers: NDArray[np.float64]) -> Vector:
        result = np.empty(len(self.embodiment.joints))
        result[self._hinge_places] = hinges
        result[self._gripper_places] = grippers
        return result
