"""Both ALOHA follower arms over two serial lines: the only module that opens their ports."""

import contextlib
import logging
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER, GripperServo
from stringline.datasets.names import unknown_name
from stringline.real_robot.command import SafeCommand, checked
from stringline.real_robot.drivers.driver import ArmState, RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.arm import DynamixelArm, watched_size
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError, sync_read
from stringline.real_robot.drivers.dynamixel.viperx import VIPERX
from stringline.real_robot.reasons import describe_servo_error

log = logging.getLogger(__name__)


class AlohaDriver:
    """Reads all eighteen servos and moves the fourteen that are no shadows.

    Args:
        ports: Serial port by arm.
        baud_rate: Of both lines.
        gripper: How the gripper's servo angle and its opening belong together.
        bus_watchdog_s: After how long a silence the servos stop by themselves; 0 leaves them without.
        answer_timeout_s: Longest wait for the answers of one cycle.
    """

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        baud_rate: int = 1_000_000,
        gripper: GripperServo = FOLLOWER,
        bus_watchdog_s: float = 0.1,
        answer_timeout_s: float = 0.006,
    ) -> None:
        for arm in ports:
            if arm not in ALOHA.arms:
                raise unknown_name("arm", arm, ALOHA.arms)
        if not 0 <= bus_watchdog_s <= 127 * table.WATCHDOG_UNIT_S:
            raise ValueError(f"bus_watchdog_s is {bus_watchdog_s}; allowed: 0 to {127 * table.WATCHDOG_UNIT_S} s.")
        self._arms = [_arm(arm, Bus(ports[arm], baud_rate), gripper) for arm in ALOHA.arms]
        self._watchdog = round(bus_watchdog_s / table.WATCHDOG_UNIT_S)
        self._timeout_s = answer_timeout_s
        self._torque = False
        self._writes: NDArray[np.int64] = np.zeros(len(self._arms), dtype=np.int64)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return ALOHA.arms

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of all eighteen servos, in the order of the state's arrays."""
        return tuple(arm.label(servo) for arm in self._arms for servo in arm.servos)

    @property
    def writes(self) -> NDArray[np.int64]:
        """(A,) commands sent to each arm so far."""
        return self._writes

    def connect(self) -> None:
        """Opens both ports, asks every servo who it is, and compares its settings with what the arm needs.

        Raises:
            RobotNotReadyError: With everything that is wrong on either arm.
        """
        problems: list[str] = []
        for arm in self._arms:
            try:
                arm.bus.open()
                problems += arm.problems()
            except (ValueError, LinkLostError) as error:
                problems.append(str(error))
        if not problems:
            try:
                for arm in self._arms:
                    arm.watch()
                # From now on the last known values are real ones.
                self._refresh(torque_expected=False)
                problems += [problem for arm in self._arms for problem in _silent(arm)]
            except (ValueError, LinkLostError) as error:
                problems.append(str(error))
        if problems:
            self.close()
            raise RobotNotReadyError(problems)

    def arm(self) -> None:
        """Makes every goal the present position, sees that it was taken, and only then turns torque on.

        Raises:
            RobotNotReadyError: A servo is silent, in error, outside its range, or refuses.
        """
        self._torque = False
        self._refresh(torque_expected=False)
        self._refuse([problem for arm in self._arms for problem in _faults(arm)])
        try:
            self._write_all(table.BUS_WATCHDOG, 0)
            for arm in self._arms:
                arm.bus.send(arm.present_as_goal())
            self._refuse([problem for arm in self._arms for problem in arm.stale_goals(10 * self._timeout_s)])
            self._write_all(table.TORQUE_ENABLE, 1)
            self._refresh(torque_expected=True)
            self._refuse([problem for arm in self._arms for problem in _faults(arm)])
            self._write_all(table.BUS_WATCHDOG, self._watchdog)
        except (ValueError, LinkLostError) as error:
            raise RobotNotReadyError(getattr(error, "problems", [str(error)])) from error
        self._torque = True

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Asks both arms at once and returns what is known after the answers, or the deadline.

        Args:
            clock: Stamps the end of the read, in seconds.
        """
        self._cycle(self._timeout_s, torque_expected=self._torque)
        position, velocity, effort = (
            np.concatenate(parts) for parts in zip(*(arm.measured() for arm in self._arms), strict=True)
        )
        return ArmState(
            time=clock(),
            position=position,
            velocity=velocity,
            effort=effort,
            servo_error=np.concatenate([arm.errors for arm in self._arms]),
            servo_misses=np.concatenate([arm.misses for arm in self._arms]),
            lost=np.array([arm.bus.lost for arm in self._arms]),
        )

    def write(self, command: SafeCommand) -> None:
        """Sends targets to every arm whose port is alive.

        Raises:
            TypeError: It is not a command that the safety filter made.
        """
        position = checked(command).position
        for index, (arm, target) in enumerate(zip(self._arms, np.split(position, len(self._arms)), strict=True)):
            if arm.bus.lost:
                continue
            try:
                arm.bus.send(arm.goal_packet(target))
                self._writes[index] += 1
            except LinkLostError as error:
                log.error("%s.", error.strerror)

    def disarm(self) -> None:
        """Turns the torque of both arms off: they fall unless something holds them.

        Raises:
            RobotNotReadyError: A servo does not follow.
        """
        try:
            self._write_all(table.TORQUE_ENABLE, 0)
        except (ValueError, LinkLostError) as error:
            raise RobotNotReadyError([str(error)]) from error
        self._torque = False

    def close(self) -> None:
        """Closes both ports. Arms with torque stay at their last target, hence their watchdogs are called off first."""
        if self._torque:
            for arm in self._arms:
                with contextlib.suppress(ValueError, LinkLostError):
                    for servo in arm.masters:
                        arm.bus.write_register(servo.ident, table.BUS_WATCHDOG, 0)
        self._torque = False
        for arm in self._arms:
            arm.bus.close()

    def _refresh(self, *, torque_expected: bool) -> None:
        """Reads with patience: before motion there is time."""
        for _ in range(3):
            self._cycle(10 * self._timeout_s, torque_expected=torque_expected)
            if not any(arm.misses.any() for arm in self._arms):
                return

    def _cycle(self, timeout_s: float, *, torque_expected: bool) -> None:
        answers = sync_read({arm.bus: arm.idents for arm in self._arms}, table.INDIRECT_DATA.address, watched_size(), timeout_s)
        for arm in self._arms:
            arm.take(answers[arm.bus], torque_expected=torque_expected)

    def _write_all(self, register: table.Register, value: int) -> None:
        for arm in self._arms:
            for servo in arm.masters:
                arm.bus.write_register(servo.ident, register, value)

    def _refuse(self, problems: list[str]) -> None:
        if problems:
            raise RobotNotReadyError(problems)


def _arm(name: str, bus: Bus, gripper: GripperServo) -> DynamixelArm:
    joints = [index for index, joint in enumerate(ALOHA.joints) if joint.arm == name]
    force, current = ALOHA.joints[joints[-1]].effort, (VIPERX[-1].current_limit or 1) * table.CURRENT_UNIT_A
    return DynamixelArm(
        name,
        bus,
        VIPERX,
        gripper,
        lower=ALOHA.lower[joints],
        upper=ALOHA.upper[joints],
        gripper_newton_per_ampere=force / current,
    )


def _silent(arm: DynamixelArm) -> list[str]:
    """Says which servos did not answer the last read."""
    return [
        f"{arm.label(servo)} on {arm.bus.port} does not answer."
        for servo, misses in zip(arm.servos, arm.misses, strict=True)
        if misses
    ]


def _faults(arm: DynamixelArm) -> list[str]:
    """Says which servos are silent or in error."""
    found = _silent(arm)
    for servo, error in zip(arm.servos, arm.errors, strict=True):
        if error:
            what = describe_servo_error(int(error))
            found.append(f"{arm.label(servo)} on {arm.bus.port} reports {what}. Find the cause, then reboot it.")
    return found
