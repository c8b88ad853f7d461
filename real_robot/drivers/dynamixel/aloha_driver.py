"""The arms of an ALOHA over a serial line each, read in one cycle: two followers, or two leaders.

`AlohaDriver` moves the followers. `AlohaLeaders` only reads the leaders, which a person moves.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER, GRIPPER_SERVOS, GripperServo
from stringline.real_robot.driver_interface.driver import (
    RESTARTED,
    ArmState,
    BusListener,
    RobotNotReadyError,
    SafeCommand,
    checked,
)
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError, ReadOnlyBus, sync_read
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX, WIDOWX, Register
from stringline.real_robot.drivers.dynamixel.servo_arm import CYCLIC_SIZE, BringUp, DynamixelArm
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


log = logging.getLogger(__name__)

# A count of Goal Current is 0.12 N; at the Current Limit the force is that of the embodiment.
_FULL_FORCE_N = ALOHA.joints[-1].effort
_FULL_CURRENT = VIPERX[-1].current_limit or 1
_FORCES_N = Range(least=1, most=_FULL_FORCE_N)


class AlohaDriver:
    """Reads all eighteen servos and moves the fourteen that do not follow a master.

    Args:
        baud_rate: Bits per second: 57600, 115200, or 1, 2, 3 or 4 million.
        bus_watchdog_s: Servos stop if they receive no message for this time, s; 0: never.
        answer_timeout_s: Longest wait for the answers of all servos in a cycle, s.
        gripper_force_n: Largest force of a gripper, the sum of both pads, N (1 to 35), as the Goal
            Current of its servo; if None, the servo's present limit at the time of `connect`, also
            after a restart.

    Other Args:
        ports: Serial port by arm.
        gripper: Relation between the gripper's servo angle and its opening.
        read_only: Whether torque stays as it is and commands are discarded. The ports then refuse
            all packets but reads.
    """

    clocked_by_robot = False

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        baud_rate: int = 1_000_000,
        gripper: GripperServo = FOLLOWER,
        bus_watchdog_s: float = 0.1,
        answer_timeout_s: float = 0.006,
        gripper_force_n: float | None = None,
        read_only: bool = False,
    ) -> None:
        check_ports(ports)
        if not 0 <= bus_watchdog_s <= 127 * table.WATCHDOG_UNIT_S:
            raise ValueError(
                f"bus_watchdog_s is {bus_watchdog_s}; allowed: 0 to {127 * table.WATCHDOG_UNIT_S} "
                f"s."
            )
        line = ReadOnlyBus if read_only else Bus
        self._arms = [_arm(arm, line(ports[arm], baud_rate), gripper) for arm in ALOHA.arms]
        self._pair = ArmPair(self._arms, answer_timeout_s, _chosen(gripper_force_n))
        self._read_only = read_only
        # Rounded up, since 0 would switch the watchdog off.
        self._watchdog = math.ceil(bus_watchdog_s / table.WATCHDOG_UNIT_S - 1e-9)
        self._torque = False
        self._writes: NDArray[np.int64] = np.zeros(len(self._arms), dtype=np.int64)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return ALOHA.arms

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of all eighteen servos, in the order of the state."""
        return self._pair.servos

    @property
    def writes(self) -> NDArray[np.int64]:
        """(A,) commands sent to each arm so far."""
        return self._writes

    def listen(self, listeners: Sequence[BusListener]) -> None:
        """Attaches a listener to the bus of each arm."""
        for arm, listener in zip(self._arms, listeners, strict=True):
            arm.bus.listener = listener

    def connect(self) -> None:
        """Opens both ports, and checks models and settings of all servos."""
        self._pair.connect()

    def arm(self) -> None:
        """Brings the servos up from what is there, and only then turns torque on.

        All that servos forget without power is set and read back, and goals are compared with
        positions that the list of watched registers takes no part in; see `BringUp`. Joints that
        this program has given torque, and that still have it, keep their goals: they do not move.
        A gripper that has torque, also from another program, keeps its goal and so what it holds.

        Raises:
            RobotNotReadyError: A servo is silent, in error, outside its range, or refuses; or it
                has restarted, and no state has reported that. `arm` can be called again.
        """
        try:
            self._bring_up()
        except (ValueError, LinkLostError) as error:
            raise RobotNotReadyError(getattr(error, "problems", [str(error)])) from error

    def _bring_up(self) -> None:
        led = self._torque
        bring_ups = self._pair.bring_ups
        if self._read_only:
            self._pair.bring_up(led=False, passive=True)
            return
        with self._watched_again(led=led):
            for bring_up in bring_ups:
                if not bring_up.arm.bus.lost:
                    bring_up.clear_watchdogs()
            self._pair.bring_up(led=led)
            for bring_up in bring_ups:
                bring_up.set_goals()
            self._check([found for bring_up in bring_ups for found in bring_up.differences()])
            for bring_up in bring_ups:
                bring_up.turn_on()
            self._pair.refresh(torque_expected=True)
            self._check(self._pair.faults())
        self._write_all(table.BUS_WATCHDOG, self._watchdog)
        self._torque = True

    @contextlib.contextmanager
    def _watched_again(self, *, led: bool) -> Iterator[None]:
        """Sets the watchdogs of arms in use again if the block ends with an error."""
        try:
            yield
        except (ValueError, LinkLostError):
            for arm in self._arms if led else ():
                for servo in arm.masters:
                    with contextlib.suppress(ValueError, LinkLostError):
                        arm.bus.write_register(servo.ident, table.BUS_WATCHDOG, self._watchdog)
            raise

    def restore(self) -> None:
        """Brings up what has restarted, or lost torque or its port, while the arms were in use.

        Arms that this program has not given torque, or has taken it from, stay without.

        Raises:
            RobotNotReadyError: As `arm`; the states go on to report the fault.
        """
        if self._pair.incomplete and (self._torque or self._read_only):
            self.arm()

    @property
    def notes(self) -> list[str]:
        """No remarks: problems of servos are refused, whether they are moved or only read."""
        return []

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Reads both arms at once and returns the last known state; `clock` stamps the end."""
        state = self._pair.read(clock, torque_expected=self._torque)
        grips = [arm.grip for arm in self._arms if arm.grip is not None]
        if not self._torque:
            return state
        kept = np.concatenate([arm.kept_goals() for arm in self._arms])
        return replace(state, gripper_goals=np.array(grips), kept_goals=kept)

    def write(self, command: SafeCommand) -> NDArray[np.bool_]:
        """Sends targets to each arm whose port is open, unless the driver only reads."""
        position = checked(command).position
        sent = np.full(len(self._arms), self._read_only)
        if self._read_only:
            return sent
        for index, (arm, target) in enumerate(
            zip(self._arms, np.split(position, len(self._arms)), strict=True)
        ):
            if arm.bus.lost:
                continue
            try:
                arm.bus.send(arm.goal_packet(target))
                self._writes[index] += 1
                sent[index] = True
            except LinkLostError as error:
                log.error("%s.", error.strerror)
        return sent

    def disarm(self) -> None:
        """Turns the torque of both arms off: they fall unless they are supported.

        Raises:
            RobotNotReadyError: A servo refuses, or the driver only reads.
        """
        if self._read_only:
            raise RobotNotReadyError(["The arms are only read; their torque stays as it is."])
        try:
            self._write_all(table.TORQUE_ENABLE, 0)
        except (ValueError, LinkLostError) as error:
            raise RobotNotReadyError([str(error)]) from error
        self._torque = False

    def close(self) -> None:
        """Closes both ports.

        Arms with torque stay at their last target, so their watchdogs are switched off first.
        """
        if self._torque:
            for arm in self._arms:
                with contextlib.suppress(ValueError, LinkLostError):
                    for servo in arm.masters:
                        arm.bus.write_register(servo.ident, table.BUS_WATCHDOG, 0)
        self._torque = False
        self._pair.close()

    def _write_all(self, register: table.Register, value: int) -> None:
        for arm in self._arms:
            for servo in arm.masters:
                arm.bus.write_register(servo.ident, register, value)

    def _check(self, problems: list[str]) -> None:
        if problems:
            raise RobotNotReadyError(problems)


def _arm(name: str, bus: Bus, gripper: GripperServo) -> DynamixelArm:
    joints = [index for index, joint in enumerate(ALOHA.joints) if joint.arm == name]
    return DynamixelArm(
        name,
        bus,
        VIPERX,
        gripper,
        lower=ALOHA.lower[joints],
        upper=ALOHA.upper[joints],
        gripper_newton_per_ampere=_FULL_FORCE_N / (_FULL_CURRENT * table.CURRENT_UNIT_A),
    )


def _chosen(force_n: float | None) -> dict[int, dict[table.Register, int]]:
    """Returns the registers of the grippers for a force in N, rounded down; None: none.

    Raises:
        ValueError: The force is out of range.
    """
    if force_n is None:
        return {}
    _FORCES_N.check(gripper_force_n=force_n)
    current = int(force_n / _FULL_FORCE_N * _FULL_CURRENT + 1e-6)
    return {VIPERX[-1].ident: {table.GOAL_CURRENT: current}}


class AlohaLeaders:
    """Reads all eighteen servos of the leaders.

    Joint angles have the same meaning as on the followers, and grippers are openings.

    Args:
        baud_rate: Bits per second: 57600, 115200, or 1, 2, 3 or 4 million.
        answer_timeout_s: Longest wait for the answers of all servos in a cycle, s.

    Other Args:
        ports: Serial port by arm.
        gripper: Relation between the gripper's servo angle and its opening.
    """

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        baud_rate: int = 1_000_000,
        gripper: GripperServo = GRIPPER_SERVOS["interbotix_leader"],
        answer_timeout_s: float = 0.006,
    ) -> None:
        check_ports(ports)
        arms = [_leader(arm, ReadOnlyBus(ports[arm], baud_rate), gripper) for arm in ALOHA.arms]
        self._pair = ArmPair(arms, answer_timeout_s)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return ALOHA.arms

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of all eighteen servos, in the order of the state."""
        return self._pair.servos

    def connect(self) -> None:
        """Opens both ports, and checks all servos and that they have no torque.

        Raises:
            RobotNotReadyError: An arm has problems; it lists those of both.
        """
        self._pair.connect()
        problems = [problem for arm in self._pair.arms for problem in _stiff(arm)]
        if problems:
            self.close()
            raise RobotNotReadyError(problems)

    def restore(self) -> None:
        """Sets servos up again that have restarted, or whose port was lost.

        Raises:
            RobotNotReadyError: An arm has problems, or a servo has torque; the states go on to
                report the error.
        """
        if not self._pair.incomplete:
            return
        try:
            self._pair.bring_up(led=False, passive=True)
        except (ValueError, LinkLostError) as error:
            raise RobotNotReadyError(getattr(error, "problems", [str(error)])) from error
        if problems := [problem for arm in self._pair.arms for problem in _stiff(arm)]:
            raise RobotNotReadyError(problems)

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Reads both arms at once and returns the last known state."""
        return self._pair.read(clock, torque_expected=False)

    def close(self) -> None:
        """Closes both ports."""
        self._pair.close()


def _leader(name: str, bus: ReadOnlyBus, gripper: GripperServo) -> DynamixelArm:
    joints = [index for index, joint in enumerate(ALOHA.joints) if joint.arm == name]
    # The relation between its gripper's motor current and a force is unknown, hence 0.
    return DynamixelArm(
        name,
        bus,
        WIDOWX,
        gripper,
        lower=ALOHA.lower[joints],
        upper=ALOHA.upper[joints],
        gripper_newton_per_ampere=0.0,
        passive=True,
    )


def _stiff(arm: DynamixelArm) -> list[str]:
    """Returns a sentence for each servo with torque."""
    try:
        return [
            f"{arm.label(servo)} on {arm.bus.port} has torque, so it cannot be moved by hand. Hold "
            f"the arm, then switch its power off and on."
            for servo in arm.servos
            if arm.bus.read_register(servo.ident, table.TORQUE_ENABLE)
        ]
    except LinkLostError as error:
        return [str(error)]
