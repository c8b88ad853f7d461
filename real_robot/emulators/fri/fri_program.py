"""The emulator of KUKA controllers with FRI, from its settings."""

import socket

from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.fri.connection_quality import QualityRule
from stringline.real_robot.emulators.fri.emulated_cell import EmulatedCell
from stringline.real_robot.emulators.fri.fri_server import FriServer
from stringline.real_robot.emulators.fri.t1_speed import t1_speed
from stringline.real_robot.emulators.grippers.gripper_rig import gripper_rig_of
from stringline.real_robot.emulators.program.control import free_udp_ports
from stringline.real_robot.emulators.program.emulated_worlds import kuka_world
from stringline.real_robot.emulators.program.emulator_settings import FriSettings


def fri_server(settings: FriSettings, control: socket.socket, images: socket.socket) -> FriServer:
    """Returns the emulator."""
    embodiment, plant = kuka_world(settings, images)
    cell = EmulatedCell(
        embodiment,
        plant,
        version_of(settings.version),
        receive_multiplier=settings.receive_multiplier,
        restarts=not settings.no_restart,
        rule=QualityRule(
            fair=min(0.5, settings.good), good=settings.good, most_missed=settings.most_missed
        ),
        gripper_rig=gripper_rig_of(settings, tuple(embodiment.grippers), plant.period_s),
        t1_speed=t1_speed(unlimited=settings.t1_unlimited),
    )
    return FriServer(
        cell,
        _ports(tuple(cell.controllers), settings.ports),
        control,
        real_time=not settings.lock_step,
        phase=settings.phase,
        capture=settings.capture,
    )


def _ports(arms: tuple[str, ...], given: str) -> dict[str, int]:
    if not given:
        return dict(zip(arms, free_udp_ports(len(arms)), strict=True))
    numbers = given.split(",")
    if len(numbers) != len(arms) or not all(
        number.isdigit() and 0 < int(number) < 1 << 16 for number in numbers
    ):
        raise ValueError(f"--ports {given!r} is not a number for each of {', '.join(arms)}.")
    return dict(zip(arms, map(int, numbers), strict=True))
