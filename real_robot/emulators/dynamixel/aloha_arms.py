"""Two emulated arms: eighteen servos on two lines, and the plant that their goals move."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER, GripperServo
from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.drivers.dynamixel.control_table import CURRENT_UNIT_A
from stringline.real_robot.drivers.dynamixel.viperx import VIPERX, Servo
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.emulators.dynamixel.dynamixel_servo import EmulatedServo
from stringline.real_robot.emulators.plants.plant import Plant

# Effort of a servo whose joint is blocked, Nm/rad or N per opening; as of a waist in MuJoCo
# Menagerie.
_STIFFNESS = 43.0
# Openings per radian. Near a quarter turn the crank moves the fingers little; beyond it they cannot
# open.
_SMALLEST_SLOPE = 0.05


class EmulatedArms:
    """Translates between registers and the plant.

    Args:
        gripper: Relation between the gripper's servo angle and its opening.

    Attributes:
        lines: Serial line by arm.
    """

    def __init__(
        self, plant: Plant, gripper: GripperServo = FOLLOWER, servos: Sequence[Servo] = VIPERX
    ) -> None:
        self._plant = plant
        self._gripper = gripper
        self._servos = tuple(servos)
        self.lines = {
            arm: EmulatedLine(EmulatedServo(kind) for kind in self._servos) for arm in ALOHA.arms
        }
        self.sense()

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins an episode; the goals of the servos are their positions in the new world."""
        self._plant.begin(seed, options)
        self.sense()
        for line in self.lines.values():
            for servo in line.servos.values():
                servo.stay()
            line.goal_writes = 0

    def advance(self) -> None:
        """Advances the plant by one period, towards the servos' targets.

        A joint without torque, or a blocked one, stays.
        """
        for line in self.lines.values():
            line.follow_profiles(self._plant.period_s)
        position = self._plant.measure()[0]
        self._plant.limit_efforts(self._largest())
        self._plant.advance(np.where(self._blocked(), position, self._goals(position)))
        self.sense()
        for line in self.lines.values():
            line.pass_time(self._plant.period_s)

    def sense(self) -> None:
        """Passes the state of the joints to the servos. Two servos of one joint share its load."""
        position, velocity, effort = self._plant.measure()
        if (blocked := self._blocked()).any():
            pushing = _STIFFNESS * (self._goals(position) - position)
            largest = self._largest()
            effort = np.where(blocked, np.clip(pushing, -largest, largest), effort)
        for arm, line in self.lines.items():
            joints = {
                joint.name: index for index, joint in enumerate(ALOHA.joints) if joint.arm == arm
            }
            for kind, servo in zip(self._servos, line.servos.values(), strict=True):
                index = joints[f"{arm}/{kind.joint}"]
                sharing = sum(other.joint == kind.joint for other in self._servos)
                angle = float(position[index])
                speed = float(velocity[index])
                if kind.joint == "gripper":
                    angle, speed = self._gripper_motion(angle, speed)
                    current = (
                        float(effort[index])
                        / ALOHA.joints[index].effort
                        * (kind.current_limit or 0)
                        * CURRENT_UNIT_A
                    )
                else:
                    current = float(effort[index]) / sharing / kind.model.torque_constant
                servo.sense(angle, speed, current)

    def _goals(self, position: Vector) -> Vector:
        """Returns the goals (J,) of the joints; without torque, that is their position."""
        goals = position.copy()
        for index, servo in enumerate(self._masters()):
            goal = servo.goal_angle()
            if goal is not None:
                is_gripper = ALOHA.joints[index].kind == "gripper"
                goals[index] = float(self._gripper.opening(goal)) if is_gripper else goal
        return goals

    def _largest(self) -> Vector:
        """Returns the limits of the joints' efforts (J,), which grippers alone have."""
        shares = zip(ALOHA.joints, self._masters(), strict=True)
        return np.array(
            [
                joint.effort * servo.current_share if joint.kind == "gripper" else np.inf
                for joint, servo in shares
            ]
        )

    def _blocked(self) -> NDArray[np.bool_]:
        """Returns which joints (J,) are blocked."""
        kinds = [kind for kind in self._servos if kind.master is None]
        return np.array(
            [kind.ident in line.blocked for line in self.lines.values() for kind in kinds]
        )

    def _gripper_motion(self, opening: float, speed: float) -> tuple[float, float]:
        angle = float(self._gripper.angle(opening))
        slope = (
            float(self._gripper.opening(angle + 1e-4) - self._gripper.opening(angle - 1e-4)) / 2e-4
        )
        return angle, speed / max(slope, _SMALLEST_SLOPE)

    def _masters(self) -> list[EmulatedServo]:
        return [
            line.servos[kind.ident]
            for line in self.lines.values()
            for kind in self._servos
            if kind.master is None
        ]
