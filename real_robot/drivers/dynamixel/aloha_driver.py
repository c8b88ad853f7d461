"""Both ALOHA follower arms over two serial lines."""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER, GripperServo
from stringline.real_robot.driver_interface.driver import ArmState, BusListener, RobotNotReadyError
from stringline.real_robot.driver_interface.safe_command import SafeCommand, checked
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.arm_pair import ArmPair, check_ports
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError
from stringline.real_robot.drivers.dynamixel.read_only import ReadOnlyBus
from stringline.real_robot.drivers.dynamixel.servo_arm import DynamixelArm
from stringline.real_robot.drivers.dynamixel.viperx import VIPERX

log = logging.getLogger(__name__)

# A count of Goal Current is 0.12 N; at the Current Limit the force is that of the embodiment.
_FULL_FORCE_N = ALOHA.joints[-1].effort
_FULL_CURRENT = VIPERX[-1].current_limit or 1
_FORCES_N = Range(least=1, most=_FULL_FORCE_N)


class AlohaDriver:
    """Reads all eighteen servos and moves the fourteen that do not follow a master.

    Args:
        ports: Serial port by arm.
        gripper: Relation between the gripper's servo angle and its opening.
        bus_watchdog_s: Silence after which the servos stop by themselves, seconds; 0: never.
        answer_timeout_s: Longest wait for the answers of one cycle.
        gripper_force_n: Limit of each gripper's force, the sum of both pads, as the Goal Current of
            its servo; None: the Goal Current at the time of `connect`, also after a restart.
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
