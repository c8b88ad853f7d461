"""Two arms on a serial line each, read in one cycle: what followers and leaders have in common."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.driver_interface.driver import ArmState, RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.bus import LinkLostError, sync_read
from stringline.real_robot.drivers.dynamixel.servo_arm import DynamixelArm, watched_size
from stringline.real_robot.safety.reasons import describe_servo_error

_PATIENCE = 10  # Before motion there is time: so many times the wait of a cycle.


def check_ports(ports: Mapping[str, str]) -> None:
    """Refuses ports of arms that there are not, and arms without one.

    Raises:
        ValueError: With the arm.
    """
    for arm in ports:
        if arm not in ALOHA.arms:
            raise unknown_name("arm", arm, ALOHA.arms)
    if missing := [arm for arm in ALOHA.arms if arm not in ports]:
        raise ValueError(f"There is no port for the arm {missing[0]!r}.")


class ArmPair:
    """Arms whose answers are awaited together.

    Args:
        arms: Not open yet.
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
        """Names of all servos, in the order of the state's arrays."""
        return tuple(arm.label(servo) for arm in self.arms for servo in arm.servos)

    def connect(self) -> None:
        """Opens the ports, asks every servo who it is, and compares its settings with what the arm needs.

        Raises:
            RobotNotReadyError: With everything that is wrong on any arm; the ports are closed
                again.
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
                # From now on the last known values are real ones.
                self.refresh(torque_expected=False)
                problems += self.silent()
            except (ValueError, LinkLostError) as error:
                problems.append(str(error))
        if problems:
            self.close()
            raise RobotNotReadyError(problems)

    def refresh(self, *, torque_expected: bool) -> None:
        """Reads with patience."""
        for _ in range(3):
            self._cycle(self.patience_s, torque_expected=torque_expected)
            if not any(arm.misses.any() for arm in self.arms):
                return

    def read(self, clock: Callable[[], float], *, torque_expected: bool) -> ArmState:
        """Asks all arms at once and returns what is known after the answers, or the deadline.

        Args:
            clock: Stamps the end of the read, in seconds. An arm of which no servo answers keeps
                its earlier stamp, and the state has the earliest one: so what is known of it grows
                old.
            torque_expected: Whether an arm without torque is in error.
        """
        self._cycle(self._timeout_s, torque_expected=torque_expected)
        now = clock()
        for index, arm in enumerate(self.arms):
            # Before the first answer to this clock there is what was read while connecting.
            heard = not arm.misses.all() or self._answered[index] == -np.inf
            self._answered[index] = (
                now if heard else min(self._answered[index], now)
            )  # Simulated clocks begin anew.
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
        asked = {arm.bus: arm.idents for arm in self.arms}
        answers = sync_read(asked, table.INDIRECT_DATA.address, watched_size(), timeout_s)
        for arm in self.arms:
            arm.take(answers[arm.bus], torque_expected=torque_expected)

    def silent(self) -> list[str]:
        """Says which servos did not answer the last read."""
        return [
            f"{arm.label(servo)} on {arm.bus.port} does not answer."
            for arm in self.arms
            for servo, misses in zip(arm.servos, arm.misses, strict=True)
            if misses
        ]

    def faults(self) -> list[str]:
        """Says which servos are silent or in error."""
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
