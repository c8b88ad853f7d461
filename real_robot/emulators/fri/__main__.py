"""KUKA arms without the hardware: `python -m stringline.real_robot.emulators.fri --task kuka_pick`.

For each arm a controller speaks FRI over UDP to a port of 127.0.0.1, where a driver is expected; a
local socket takes clock, images and faults. Prints one line of JSON with the ports and the socket's
name, and serves until the client that connected to the socket leaves. Any FRI client of the same
version can be moved by it.
"""

import argparse
import logging
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, VERSIONS, version_of
from stringline.real_robot.emulators.fri.connection_quality import QualityRule
from stringline.real_robot.emulators.fri.emulated_cell import EmulatedCell
from stringline.real_robot.emulators.fri.fri_server import FriServer
from stringline.real_robot.emulators.grippers.gripper_arguments import (
    add_gripper_arguments,
    bench_of,
)
from stringline.real_robot.emulators.plants.kuka_world import add_world_arguments, kuka_world
from stringline.real_robot.emulators.program.control import announce, local_sockets
from stringline.real_robot.emulators.program.free_ports import free_udp_ports


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the emulator."""
    settings = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with local_sockets("control", "images") as (control, images):
        try:
            cell = _cell(settings, None if settings.lock_step else images)
            ports = _ports(tuple(cell.controllers), settings.ports)
        except (ValueError, RuntimeError) as error:
            raise SystemExit(str(error)) from error
        server = FriServer(
            cell,
            ports,
            control,
            real_time=not settings.lock_step,
            phase=settings.phase,
            capture=settings.capture,
        )
        announce({arm: f"127.0.0.1:{port}" for arm, port in ports.items()}, control, images)
        server.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add_world_arguments(parser)
    parser.add_argument(
        "--version", choices=tuple(VERSIONS), default=DEFAULT_VERSION, help="of FRI"
    )
    parser.add_argument(
        "--receive-multiplier", type=int, default=1, help="messages for each answer"
    )
    parser.add_argument(
        "--ports", default="", help="of the drivers, comma-separated; empty: any that are free"
    )
    parser.add_argument(
        "--phase",
        type=float,
        default=0.4,
        help="share of a period between the beats of two controllers",
    )
    parser.add_argument(
        "--most-missed", type=int, default=4, help="answers in a row that may be missing"
    )
    parser.add_argument(
        "--good",
        type=float,
        default=0.8,
        help="share of answers in time from which commands are taken",
    )
    parser.add_argument(
        "--lock-step", action="store_true", help="go on only when told to, instead of in real time"
    )
    parser.add_argument(
        "--no-restart",
        action="store_true",
        help="the application gives up when its motion is broken off",
    )
    add_gripper_arguments(parser)
    parser.add_argument(
        "--capture", type=Path, help="folder for the bytes that drivers send, one file per arm"
    )
    return parser


def _cell(settings: argparse.Namespace, images: socket.socket | None) -> EmulatedCell:
    body, plant = kuka_world(settings, images)
    return EmulatedCell(
        body,
        plant,
        version_of(settings.version),
        receive_multiplier=settings.receive_multiplier,
        restarts=not settings.no_restart,
        rule=QualityRule(
            fair=min(0.5, settings.good), good=settings.good, most_missed=settings.most_missed
        ),
        bench=bench_of(settings, tuple(body.grippers), plant.period_s),
    )


def _ports(arms: tuple[str, ...], given: str) -> dict[str, int]:
    if given:
        numbers = given.split(",")
        if len(numbers) != len(arms) or not all(
            number.isdigit() and 0 < int(number) < 1 << 16 for number in numbers
        ):
            raise ValueError(f"--ports {given!r} is not a number for each of {', '.join(arms)}.")
        return dict(zip(arms, map(int, numbers), strict=True))
    return dict(zip(arms, free_udp_ports(len(arms)), strict=True))


if __name__ == "__main__":
    main()
