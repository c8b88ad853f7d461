"""Two arms on a serial line each, read in one cycle: the common part of followers and leaders."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.driver_interface.driver import ArmState, RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.bus import LinkLostError, sync_read
from stringline.real_robot.drivers.dynamixel.servo_arm import WATCHED_SIZE, DynamixelArm
from stringline.real_robot.safety.reasons import describe_servo_error

_PATIENCE = 10  # While nothing moves, the wait of a cycle is that many times longer.


def check_ports(ports: Mapping[str, str]) -> None:
    """Checks that each arm has a port.

    Raises:
        ValueError: An arm is unknown or has no port.
    """
    for arm in ports:
        if arm not in ALOHA.arms:
            raise unknown_name("arm", arm, ALOHA.arms)
    if missing := [arm for arm in ALOHA.arms if arm not in ports]:
        raise ValueError(f"There is no port for the arm {missing[0]!r}.")


class ArmPair:
    """Arms that are read together.

    Args:
        arms: The arms, not open yet.
        timeout_s: Longest wait for the answers of one cycle.
    """

    def __init__(self, arms: Sequence[DynamixelArm], timeout_s: float) -> None:
        self.arms = tuple(arms)
        self._timeout_s = timeout_s
        self._answered = [-np.inf] * len(self.arms)

    @property
    def patience_s(self) -> float:
        """Longest wait while nothing moves."""
        return _PATIENCE * self._timeout_s

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of all servos, in the order of the state."""
        return tuple(arm.label(servo) for arm in self.arms for servo in arm.servos)

    def connect(self) -> None:
        """Opens the ports, and checks models and settings of all servos.

        Raises:
            RobotNotReadyError: An arm has problems; it lists those of all. The ports are closed.
        """
        problems: list[str] = []
        for arm in self.arms:
            try:
                arm.bus.open()
                problems += arm.problems()
            except (ValueError, LinkLostError) as error:
                problems.append(str(error))
        if not problems:
            try:
                for arm in self.arms:
                    arm.watch()
                # From here on the last known values are measured ones.
                self.refresh(torque_expected=False)
                problems += self.silent()
            except (ValueError, LinkLostError) as error:
                problems.append(str(error))
        if problems:
            self.close()
            raise RobotNotReadyError(problems)

    def refresh(self, *, torque_expected: bool) -> None:
        """Reads with a long deadline."""
        for _ in range(3):
            self._cycle(self.patience_s, torque_expected=torque_expected)
            if not any(arm.misses.any() for arm in self.arms):
                return

    def read(self, clock: Callable[[], float], *, torque_expected: bool) -> ArmState:
        """Reads all arms at once and returns the last known state.

        `clock` stamps the end of the read, in seconds. An arm without any answer keeps its earlier
        stamp, and the state has the earliest one, so that its age is known. If `torque_expected`,
        an arm without torque is in error.
        """
        self._cycle(self._timeout_s, torque_expected=torque_expected)
        now = clock()
        for index, arm in enumerate(self.arms):
            # Before the first answer by this clock, the values of `connect` count.
            heard = not arm.misses.all() or self._answered[index] == -np.inf
            # Simulated clocks may be set back.
            self._answered[index] = now if heard else min(self._answered[index], now)
        position, velocity, effort = (
            np.concatenate(parts)
            for parts in zip(*(arm.measured() for arm in self.arms), strict=True)
        )
        return ArmState(
            time=min(self._answered),
            position=position,
            velocity=velocity,
            effort=effort,
            servo_error=np.concatenate([arm.errors for arm in self.arms]),
            servo_misses=np.concatenate([arm.misses for arm in self.arms]),
            lost=np.array([arm.bus.lost for arm in self.arms]),
            temperature=np.concatenate([arm.temperatures for arm in self.arms]),
        )

    def _cycle(self, timeout_s: float, *, torque_expected: bool) -> None:
        idents = {arm.bus: arm.idents for arm in self.arms}
        answers = sync_read(idents, table.INDIRECT_DATA.address, WATCHED_SIZE, timeout_s)
        for arm in self.arms:
            arm.take(answers[arm.bus], torque_expected=torque_expected)

    def silent(self) -> list[str]:
        """Returns a sentence for each servo that did not answer the last read."""
        return [
            f"{arm.label(servo)} on {arm.bus.port} does not answer."
            for arm in self.arms
            for servo, misses in zip(arm.servos, arm.misses, strict=True)
            if misses
        ]

    def faults(self) -> list[str]:
        """Returns a sentence for each servo that is silent or in error."""
        found = self.silent()
        for arm in self.arms:
            for servo, error in zip(arm.servos, arm.errors, strict=True):
                if error:
                    what = describe_servo_error(int(error))
                    found.append(
                        f"{arm.label(servo)} on {arm.bus.port} reports {what}. Find the cause, "
                        f"then reboot it."
                    )
        return found

    def close(self) -> None:
        """Closes the ports; servos stay as they are."""
        for arm in self.arms:
            arm.bus.close()
