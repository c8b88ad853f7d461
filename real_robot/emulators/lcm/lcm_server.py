"""The emulator of KUKA arms behind drake-iiwa-driver: LCM to the drivers."""

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.lcm.drake_messages import Channels
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS, group_of
from stringline.real_robot.emulators.fri.controller import t1_speed
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell, KukaServer
from stringline.real_robot.emulators.grippers.emulated_wsg import gripper_rig_of
from stringline.real_robot.emulators.lcm.emulated_program import VERSION, DriverProgramEmulator
from stringline.real_robot.emulators.program.emulator_server import (
    Served,
    free_udp_ports,
    kuka_world,
)
from stringline.real_robot.emulators.program.emulator_settings import LcmSettings
from stringline.real_robot.ipc.array_messages import Header

# Between two periods while time does not count: programs need many of them to come up.
_WAKING_PERIOD_S = 0.001
# While an emulator makes up for lost time, its messages are old, and drivers send nothing. Real
# controllers go on while the program's host is busy, so little is made up for.
MOST_LAG_S = 0.05


class LcmServer(KukaServer):
    """Serves one client and the drivers.

    Args:
        programs: Driver programs of the arms, each arm in one of them.
    """

    WRITE: ClassVar[str] = "command"

    def __init__(
        self,
        cell: EmulatedCell,
        programs: Sequence[DriverProgramEmulator],
        listener: socket.socket,
        *,
        real_time: bool,
        phase: float = 0.0,
    ) -> None:
        super().__init__(
            cell,
            listener,
            real_time=real_time,
            phase=phase,
            waking_s=_WAKING_PERIOD_S,
            most_lag_s=MOST_LAG_S,
        )
        self._programs = programs
        self._program_of = {arm: program for program in programs for arm in program.arms}

    @property
    def ports(self) -> dict[str, str]:
        """`group:port` of LCM by arm."""
        return {arm: self._program_of[arm].address for arm in self._cell.controllers}

    @property
    def _connections(self) -> Sequence[DriverProgramEmulator]:
        return self._programs

    def _skip(self, arm: str, periods: int) -> None:
        self._program_of[arm].skip(arm, periods)

    def _cycle(self, arm: str) -> None:
        # The program steps before the world does, which takes milliseconds: so it has accepted
        # commands and published its status before other work can come between the two. Of two
        # commands between its steps it takes the second, and that would be a jump.
        self._program_of[arm].tick((arm,), self._host_us(), counted=self._real_time)
        if arm == self._first:
            if self._real_time:
                self._advance_world()
            else:
                self._tick_grippers()

    def _host_us(self) -> int | None:
        """The time on the host; in lock-step it is that of the controllers."""
        return time.time_ns() // 1000 if self._real_time else None

    def _report(self, header: Header) -> Header:
        return {"report": {arm: program.report(arm) for arm, program in self._program_of.items()}}

    def _fault(self, arm: str, kind: str, number: int) -> None:
        if arm not in self._program_of:
            raise unknown_name("arm", arm, self._program_of)
        self._program_of[arm].fault(arm, kind, number)

    def _restart(self) -> None:
        for program in self._programs:
            program.reboot({arm: self._cell.controllers[arm] for arm in program.arms})

    def _begin(self, seed: int, options: Mapping[str, Any]) -> None:
        for program in self._programs:
            program.begin()
        messages = self._cell.begin(seed, options)
        self._begun = True
        for index in range(max(map(len, messages.values()))):
            for program in self._programs:
                for arm in program.arms:
                    for data in messages[arm][index : index + 1]:
                        program.program.step(arm, data, self._host_us())
                program.publish()

    def _writes(self) -> Mapping[str, tuple[Served, int]]:
        return {arm: (program, program.received) for arm, program in self._program_of.items()}

    def _step(self) -> None:
        self._serve_grippers()
        self._advance_world()
        for program in self._programs:
            program.tick(program.arms, None, counted=False)


def lcm_server(settings: LcmSettings, control: socket.socket, images: socket.socket) -> LcmServer:
    """Returns the emulator."""
    address = settings.address or f"{group_of(DEFAULT_ADDRESS)[0]}:{free_udp_ports(1)[0]}"
    group_of(address)
    embodiment, plant = kuka_world(settings, images)
    gripper = replace(settings, gripper_address=settings.gripper_address or address)
    rig = gripper_rig_of(gripper, tuple(embodiment.grippers), plant.period_s)
    cell = EmulatedCell(
        embodiment,
        plant,
        VERSION,
        gripper_rig=rig,
        t1_speed=t1_speed(unlimited=settings.t1_unlimited),
    )
    return LcmServer(
        cell,
        _programs(cell, address, settings),
        control,
        real_time=not settings.lock_step,
        phase=settings.phase,
    )


def channels_of(prefix: str) -> Channels:
    """Returns the channels of the driver program with this prefix."""
    return Channels(f"{prefix}_COMMAND", f"{prefix}_STATUS", f"{prefix}_STATUS_TELEMETRY")


def _programs(
    cell: EmulatedCell, address: str, settings: LcmSettings
) -> list[DriverProgramEmulator]:
    arms = tuple(cell.controllers)
    prefixes = settings.prefixes.split(",")
    if (
        len(prefixes) not in (1, len(arms))
        or not all(prefixes)
        or len(set(prefixes)) != len(prefixes)
    ):
        raise ValueError(
            f"--prefixes {settings.prefixes!r} is not one for all of {', '.join(arms)}, or one "
            f"for each."
        )
    found = []
    for index, prefix in enumerate(prefixes):
        own = arms if len(prefixes) == 1 else arms[index : index + 1]
        capture = None if settings.capture is None else settings.capture / f"{prefix}.bin"
        controllers = {arm: cell.controllers[arm] for arm in own}
        found.append(
            DriverProgramEmulator(controllers, address, channels_of(prefix), settings, capture)
        )
    return found
