"""Two arms on a serial line each, read in one cycle: the common part of followers and leaders."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.driver_interface.driver import (
    RESTARTED,
    ArmState,
    RobotNotReadyError,
)
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.bring_up import BringUp
from stringline.real_robot.drivers.dynamixel.bus import LinkLostError, sync_read
from stringline.real_robot.drivers.dynamixel.control_table import Register
from stringline.real_robot.drivers.dynamixel.servo_arm import CYCLIC_SIZE, DynamixelArm
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
        chosen: Values by servo id that are set at each bring-up; see `BringUp`.
    """

    def __init__(
        self,
        arms: Sequence[DynamixelArm],
        timeout_s: float,
        chosen: Mapping[int, Mapping[Register, int]] | None = None,
    ) -> None:
        self.arms = tuple(arms)
        self._timeout_s = timeout_s
        self._answered = [-np.inf] * len(self.arms)
        self.bring_ups = tuple(BringUp(arm, self.patience_s, chosen) for arm in self.arms)
        # Ids by arm of servos whose restart, or lost port, was reported as a state.
        self._reported: list[set[int]] = [set() for _ in self.arms]

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
                for bring_up in self.bring_ups:
                    bring_up.watch()
                    bring_up.remember()
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
            self._reported[index].update(arm.idents if arm.bus.lost else arm.restarted)
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
        answers = sync_read(idents, table.RESTART_MARK.address, CYCLIC_SIZE, timeout_s)
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

    def faults(self, but: int = 0) -> list[str]:
        """Returns a sentence for each servo that is silent or in error; not for the bits `but`."""
        found = self.silent()
        for arm in self.arms:
            for servo, error in zip(arm.servos, arm.errors, strict=True):
                if left := int(error) & ~but:
                    what = describe_servo_error(left)
                    found.append(
                        f"{arm.label(servo)} on {arm.bus.port} reports {what}. Find the cause, "
                        f"then reboot it."
                    )
        return found

    def bring_up(self, *, led: bool, passive: bool = False) -> None:
        """Opens lost ports, sets everything but goals and torque again, and measures.

        Servos that have restarted, or whose port was lost, without a state that reported it, are
        named, as are joints that stand elsewhere than before. The next bring-up goes on.

        Args:
            led: Whether goals of joints with torque are this program's, and are kept.
            passive: Whether the arms are only read.

        Raises:
            RobotNotReadyError: Servos differ from what they should be; it lists all problems.
        """
        before = [arm.ticks.copy() for arm in self.arms]
        reopened = self._reopen()
        self.refresh(torque_expected=False)
        _check(self.faults(RESTARTED))
        problems: list[str] = []
        for index, arm in enumerate(self.arms):
            back = set(arm.idents if arm in reopened else arm.restarted)
            self._prepare(index, led=led, passive=passive)
            problems += arm.diverging_shadows()
            problems += arm.moved(before[index], back)
            problems += self._unreported(index, back)
            self._reported[index] -= back
        self.refresh(torque_expected=False)
        _check(problems)
        _check(self.faults())

    def _prepare(self, index: int, *, led: bool, passive: bool) -> None:
        arm = self.arms[index]
        bring_up = self.bring_ups[index]
        _check(arm.settings_problems())
        if not passive:
            bring_up.prepare(led=led)
            return
        bring_up.watch()
        _check(arm.measure(self.patience_s))

    def _reopen(self) -> list[DynamixelArm]:
        """Opens lost ports again, and checks the servos behind them; returns their arms."""
        lost = [arm for arm in self.arms if arm.bus.lost]
        problems: list[str] = []
        for arm in lost:
            arm.bus.close()
            try:
                arm.bus.open()
                wrong = arm.problems()
                if not wrong:
                    self.bring_ups[self.arms.index(arm)].watch()
            except (ValueError, LinkLostError) as error:
                wrong = [str(error)]
            if wrong:
                arm.bus.close()
                arm.bus.lost = True
                problems += wrong
        _check(problems)
        return lost

    def _unreported(self, index: int, back: set[int]) -> list[str]:
        """Returns a sentence for each restart that nobody was told about."""
        arm = self.arms[index]
        return [
            f"{arm.label(servo)} on {arm.bus.port} has restarted since it was last read. Check its "
            f"cable and its power supply, then try again; nothing has moved."
            for servo in arm.servos
            if servo.ident in back - self._reported[index]
        ]

    @property
    def incomplete(self) -> bool:
        """Whether a servo is in error, or a port is lost."""
        return any(arm.bus.lost or arm.errors.any() for arm in self.arms)

    def close(self) -> None:
        """Closes the ports; servos stay as they are."""
        for arm in self.arms:
            arm.bus.close()


def _check(problems: list[str]) -> None:
    if problems:
        raise RobotNotReadyError(problems)
