"""The emulator of KUKA arms behind drake-iiwa-driver, from its settings."""

import socket
from dataclasses import replace

from stringline.real_robot.drivers.lcm.channels import Channels
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS, group_of
from stringline.real_robot.emulators.fri.emulated_cell import EmulatedCell
from stringline.real_robot.emulators.fri.t1_speed import t1_speed
from stringline.real_robot.emulators.grippers.gripper_rig import gripper_rig_of
from stringline.real_robot.emulators.lcm.driver_program import DriverProgramEmulator
from stringline.real_robot.emulators.lcm.emulated_program import VERSION
from stringline.real_robot.emulators.lcm.lcm_server import LcmServer
from stringline.real_robot.emulators.program.control import free_udp_ports
from stringline.real_robot.emulators.program.emulated_worlds import kuka_world
from stringline.real_robot.emulators.program.emulator_settings import LcmSettings


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
