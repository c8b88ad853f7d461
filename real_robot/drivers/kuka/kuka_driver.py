"""The driver of LBR arms without its protocol: connecting, arming, and the robot's cycle."""

import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.driver_interface.driver import (
    ArmState,
    RobotNotReadyError,
    SafeCommand,
    checked,
)
from stringline.real_robot.driver_interface.gripper import Gripper, GripperSettings
from stringline.real_robot.driver_interface.interlocks import (
    READ_ONLY_WAIT_S,
    Interlock,
    describe_refusal,
)
from stringline.real_robot.drivers.kuka.kuka_arm import ArmUnit, Controller, Link, state_of

_PATIENCE_PERIODS = 1.5


class KukaOptions(TypedDict, total=False):
    """Arguments of all drivers of LBR arms; see `KukaDriver`."""

    period_s: float
    grippers: Mapping[str, GripperSettings] | None
    answer_timeout_s: float | None
    connect_timeout_s: float
    arm_timeout_s: float
    together: bool
    read_only: bool


class KukaDriver(ABC):
    """Reads and moves one arm or several: seven joints each, and an opening.

    The opening has an effect only with a gripper.

    Args:
        protocol: Name of the protocol, for messages.
        ports: Port by arm, in the order of the embodiment's arms.
        by_arm: Further settings by arm, whose names are checked.
        default_period_s: Period of the protocol.
        period_s: Seconds between two commands; if None, the default.
        answer_timeout_s: Longest wait for a message; if None, one and a half periods.
        connect_timeout_s: Longest wait for the first messages.
        arm_timeout_s: Longest wait until all arms accept commands.
        together: Whether all arms share a clock, as emulated ones in lock-step.
        read_only: Whether commands are discarded.

    Raises:
        ValueError: The arguments do not fit together.
    """

    clocked_by_robot = True

    def __init__(
        self,
        protocol: str,
        ports: Mapping[str, str],
        by_arm: Mapping[str, Any] | None,
        default_period_s: float,
        *,
        period_s: float | None = None,
        grippers: Mapping[str, GripperSettings] | None = None,
        answer_timeout_s: float | None = None,
        connect_timeout_s: float = 5.0,
        arm_timeout_s: float = 20.0,
        together: bool = False,
        read_only: bool = False,
    ) -> None:
        period_s = default_period_s if period_s is None else period_s
        if not ports or not 1e-3 <= period_s <= 0.1:
            raise ValueError(
                f"{protocol} needs at least one arm and a period from 1 to 100 ms; got "
                f"{len(ports)} and {period_s} s."
            )
        given = grippers or {}
        for name in (*(by_arm or {}), *given):
            if name not in ports:
                raise unknown_name("arm", str(name), ports)
        self._ports = dict(ports)
        self._period_s = period_s
        self._grippers: dict[str, Gripper] = {
            name: given[name].gripper(name, period_s=period_s, read_only=read_only)
            for name in ports
            if name in given
        }
        self._timeout_s = (
            _PATIENCE_PERIODS * period_s if answer_timeout_s is None else answer_timeout_s
        )
        self._connect_timeout_s = connect_timeout_s
        self._arm_timeout_s = arm_timeout_s
        self._together = together
        self._read_only = read_only
        self._time = 0.0

    @property
    @abstractmethod
    def _all_links(self) -> Sequence[Link]: ...

    @property
    @abstractmethod
    def _controllers(self) -> Sequence[Controller]:
        """The controllers; the first one clocks the cycles."""

    @property
    @abstractmethod
    def _units(self) -> Sequence[ArmUnit]:
        """The arms in the order of the ports, at the latest after `_begin_session`."""

    @property
    @abstractmethod
    def _controller_names(self) -> Sequence[str]:
        """The name of the controller of each arm, for messages."""

    @abstractmethod
    def _begin_session(self) -> None:
        """Prepares for messages after the links have been opened."""

    @abstractmethod
    def _all_heard(self) -> bool:
        """Returns whether all controllers have sent what `connect` checks."""

    @abstractmethod
    def _collect(self) -> None:
        """Takes the messages that have arrived, without waiting."""

    @abstractmethod
    def _answer(self, *, clocking: bool) -> None:
        """Answers controllers with an own clock, and those that clock the cycles if `clocking`."""

    @abstractmethod
    def _begin_arming(self) -> None:
        """Forgets messages that may be old."""

    @abstractmethod
    def _obstacles(self, interlocks: Mapping[str, Interlock]) -> Mapping[str, str]:
        """Returns the reasons, by arm, for which arming is not finished; none if it is."""

    @abstractmethod
    def _all_fresh(self) -> bool:
        """Returns whether arms that are only read may stay as they are."""

    @abstractmethod
    def _end_arming(self) -> None:
        """Prepares for the first command."""

    @abstractmethod
    def _refusals(self) -> Mapping[str, Interlock]:
        """Returns the interlock of each arm that lasts."""

    @abstractmethod
    def _take_interlocks(self) -> Mapping[str, Interlock]:
        """Returns the interlock of each arm; events since the last call are reported once."""

    @property
    @abstractmethod
    def _remarks(self) -> Sequence[str]:
        """Remarks for the operator, a sentence each."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(self._ports)

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of the controllers, one per arm, and of the grippers that measure."""
        return (*self._controller_names, *(gripper.servo for gripper in self._measuring))

    @property
    def _measuring(self) -> list[Gripper]:
        return [gripper for gripper in self._grippers.values() if gripper.servo]

    @property
    def writes(self) -> NDArray[np.int64]:
        """(A,) commands sent to each arm so far."""
        sent = [unit.arm.sent for unit in self._units] or [0] * len(self._ports)
        return np.array(sent, dtype=np.int64)

    def connect(self) -> None:
        """Opens the connections and waits for the first messages of all controllers.

        Raises:
            RobotNotReadyError: The robot has problems; it lists all of them.
        """
        problems = []
        for link in self._all_links:
            try:
                link.open()
            except ValueError as error:
                problems.append(str(error))
        if not problems:
            self._begin_session()
            deadline = time.monotonic() + self._connect_timeout_s
            while not self._all_heard() and self._wait(deadline):
                pass
            problems = [found for one in self._controllers if (found := one.problem())]
            problems += [found for unit in self._units for found in self._gripper_problems(unit)]
        if problems:
            self.close()
            raise RobotNotReadyError(problems)

    def _gripper_problems(self, unit: ArmUnit) -> list[str]:
        return unit.gripper.connect(self._connect_timeout_s)

    def arm(self) -> None:
        """Waits until all arms accept commands; nothing moves.

        Arms that are only read are given a few seconds; `notes` then lists the obstacles.

        Raises:
            RobotNotReadyError: An arm does not accept commands in time.
        """
        patience_s = self._arm_timeout_s
        if self._read_only:
            patience_s = min(READ_ONLY_WAIT_S, patience_s)
        deadline = time.monotonic() + patience_s
        self._collect()
        self._answer(clocking=False)
        self._begin_arming()
        while obstacles := self._obstacles(
            self._refusals() if self._read_only else self._take_interlocks()
        ):
            if not self._wait(deadline):
                if self._read_only and self._all_fresh():
                    return
                raise RobotNotReadyError(
                    [f"{name} accepts no commands: {why}." for name, why in obstacles.items()]
                )
            self._answer(clocking=True)
        self._end_arming()

    @property
    def notes(self) -> list[str]:
        """Interlocks of arms that are only read, and other remarks, a sentence each."""
        refusals = self._refusals() if self._read_only else {}
        refused = [describe_refusal(name, why) for name, why in refusals.items() if why]
        return [*refused, *self._remarks]

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Waits for the message that begins a cycle, or in vain, and returns the last known state.

        `clock` stamps the end of the read, in seconds.
        """
        clocking = self._controllers if self._together else self._controllers[:1]
        deadline = self._cycle_deadline(clocking, time.monotonic())
        self._collect()
        self._answer(clocking=False)
        while not all(one.pending for one in clocking) and self._wait(deadline):
            self._answer(clocking=False)
        now = clock()
        fresh = any(one.fresh or one.pending for one in self._controllers)
        # Simulated clocks may be set back.
        self._time = now if fresh else min(self._time, now)
        for one in self._controllers:
            one.misses = 0 if one.fresh or one.pending else one.misses + 1
            one.fresh = False
        for unit in self._units:
            unit.gripper.read()
        return state_of(self._units, self._time, self._take_interlocks().values())

    def _cycle_deadline(self, clocking: Sequence[Controller], now: float) -> float:
        return now + self._timeout_s

    def _targets(self, command: SafeCommand) -> list[NDArray[np.float64]]:
        """Returns the (8,) target of each arm: seven joints and the opening."""
        return np.split(checked(command).position, len(self._units))

    def close(self) -> None:
        """Closes the connections, after which nothing is sent."""
        for link in self._all_links:
            link.close()
        for gripper in self._grippers.values():
            gripper.close()

    def _wait(self, deadline: float) -> bool:
        """Waits for a message and takes it; returns False after the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        select.select(self._all_links, [], [], left)
        self._collect()
        return True
