"""LBR arms over FRI, one controller and one UDP port each, as the device process uses them.

The first arm clocks the cycles: a read waits for its message, and its answer is sent as soon as the
filter has checked it. The other arms are answered in the cycles of their own controllers, at once,
and follow the path of the filter's commands with a short delay.
"""

import time
from collections.abc import Mapping, Sequence
from ctypes import c_double
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.driver_interface.driver import BusListener, SafeCommand
from stringline.real_robot.driver_interface.interlocks import (
    ControllerInput,
    Interlock,
    describe_interlock,
)
from stringline.real_robot.drivers.fri.controller_io import OutputGripper, RunInput
from stringline.real_robot.drivers.fri.enums import OperationMode
from stringline.real_robot.drivers.fri.fri_arm import FriArm
from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, version_of
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS, ArmUnit, Controller
from stringline.real_robot.drivers.kuka.kuka_driver import KukaDriver, KukaOptions


class FriDriver(KukaDriver):
    """Reads and moves one arm or several over FRI.

    Args:
        version: Version of FRI on the controller.
        controllers: Addresses of the controllers by arm, whose messages alone count; without one,
            that of the first message.
        operation_modes: Names of the modes in which the arms may be moved.

    Other Args:
        ports: `address:number` of this computer by arm, in the order of the embodiment's arms.
        **options: Arguments of `KukaDriver`. `period_s` must be the controllers' send period times
            their receive multiplier; default: 0.01. With `read_only`, sessions are kept alive.
    """

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        version: str = DEFAULT_VERSION,
        controllers: Mapping[str, str] | None = None,
        operation_modes: Sequence[str] = ("T1",),
        **options: Unpack[KukaOptions],
    ) -> None:
        super().__init__("FRI", ports, controllers, 0.01, **options)
        # The name, since a driver is pickled for its process and the messages of a version are not.
        self._version = version
        has_io = version_of(version).has_io
        outputs = any(isinstance(one, OutputGripper) for one in self._grippers.values())
        if outputs and not has_io:
            raise ValueError(
                f"FRI {version} has no inputs and outputs for a gripper; allowed: 1.14 and later."
            )
        self._modes = frozenset(_mode(name) for name in operation_modes)
        by_arm = controllers or {}
        self._links = [FriLink(port, by_arm.get(name)) for name, port in self._ports.items()]
        self._arms: list[FriArm] = []
        self._arm_units: list[ArmUnit] = []
        self._deadline = 0.0
        self._permissions: dict[str, tuple[str, c_double]] = {}

    def permit_by(self, chosen: ControllerInput, permission: c_double) -> None:
        """Lets an input of a controller permit motion, before the connection.

        Args:
            chosen: The input.
            permission: Memory of the time of the last permission.

        Raises:
            ValueError: The arm is unknown, or the version of FRI lacks inputs.
        """
        if not version_of(self._version).has_io:
            raise ValueError(
                f"FRI {self._version} has no inputs for hold-to-run; allowed: 1.14 and later."
            )
        arm = chosen.arm or next(iter(self._ports))
        if arm not in self._ports:
            raise unknown_name("arm of robot.hold_to_run", arm, self._ports)
        self._permissions = {arm: (chosen.input, permission)}

    @property
    def _all_links(self) -> Sequence[FriLink]:
        return self._links

    @property
    def _controllers(self) -> Sequence[FriArm]:
        return self._arms

    @property
    def _units(self) -> Sequence[ArmUnit]:
        return self._arm_units

    @property
    def _controller_names(self) -> Sequence[str]:
        return [f"{name}/controller ({port})" for name, port in self._ports.items()]

    def listen(self, listeners: Sequence[BusListener]) -> None:
        """Attaches a listener to each port."""
        for link, listener in zip(self._links, listeners, strict=True):
            link.listener = listener

    def _begin_session(self) -> None:
        version = version_of(self._version)
        self._arms = [
            FriArm(
                name,
                link,
                version,
                period_s=self._period_s,
                operation_modes=self._modes,
                gripper=self._grippers.get(name),
                read_only=self._read_only,
                own_clock=index > 0 and not self._together,
                run_input=RunInput(*self._permissions[name]) if name in self._permissions else None,
            )
            for index, (name, link) in enumerate(zip(self._ports, self._links, strict=True))
        ]
        self._arm_units = [ArmUnit(arm, arm, arm.gripper) for arm in self._arms]

    def _all_heard(self) -> bool:
        return all(arm.message is not None for arm in self._arms)

    def _gripper_problems(self, unit: ArmUnit) -> list[str]:
        # A gripper at the controller's outputs is checked by the controller's first message.
        if isinstance(unit.gripper, OutputGripper):
            assert isinstance(unit.arm, FriArm)
            message = unit.arm.message
            return [] if message is None else unit.gripper.problems(message.inputs)
        return super()._gripper_problems(unit)

    def _collect(self) -> None:
        now = time.monotonic()
        for arm in self._arms:
            arm.collect(now)

    def _refusals(self) -> Mapping[str, Interlock]:
        return {arm.name: arm.refusal for arm in self._arms}

    def _take_interlocks(self) -> Mapping[str, Interlock]:
        return {arm.name: arm.take_interlock() for arm in self._arms}

    def _obstacles(self, interlocks: Mapping[str, Interlock]) -> Mapping[str, str]:
        return {name: describe_interlock(one) for name, one in interlocks.items() if one}

    @property
    def _remarks(self) -> Sequence[str]:
        return [note for arm in self._arms if (note := arm.note)]

    def _cycle_deadline(self, clocking: Sequence[Controller], now: float) -> float:
        # Where the clocking message is missing, wait for a period at a time: the other arms
        # continue in their own cycles.
        deadline = now + self._timeout_s
        if any(one.misses for one in clocking):
            next_s = max(self._deadline + self._period_s, now + self._period_s / 2)
            deadline = min(next_s, deadline)
        self._deadline = deadline
        return deadline

    def write(self, command: SafeCommand) -> NDArray[np.bool_]:
        """Answers the arms that share the clock; the others are answered in their own cycles."""
        taken = [
            arm.offer(target[:JOINTS], float(target[JOINTS]))
            for arm, target in zip(self._arms, self._targets(command), strict=True)
        ]
        for place, arm in enumerate(self._arms):
            if place == 0 or self._together:
                taken[place] &= arm.answer()
        return np.array(taken) | self._read_only

    def disarm(self) -> None:
        """Does nothing: controllers without answers end the motion and hold their arms."""

    def _answer(self, *, clocking: bool) -> None:
        others = [] if self._together else self._arms[1:]
        for arm in self._arms if clocking else others:
            arm.answer()

    def _begin_arming(self) -> None:
        """Does nothing: answers continue all the time."""

    def _all_fresh(self) -> bool:
        return True

    def _end_arming(self) -> None:
        """Does nothing: commands begin at the controller's position."""


def _mode(name: str) -> OperationMode:
    if name not in OperationMode.__members__:
        raise unknown_name("operation mode", name, OperationMode.__members__)
    return OperationMode[name]
