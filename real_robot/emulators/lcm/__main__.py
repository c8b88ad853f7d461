"""KUKA arms behind drake-iiwa-driver without either: `python -m stringline.real_robot.emulators.lcm --task kuka_pick`.

An emulated drake-iiwa-driver publishes and listens in a multicast group of LCM, on the loopback,
which nothing leaves; an emulated controller per arm is behind it. A local socket takes clock,
images and faults. Prints one line of JSON with the group by arm and the socket's name, and serves
until the client that connected to the socket leaves. Whatever drives the real program over LCM can
drive this one.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS, group_of
from stringline.real_robot.emulators.fri.emulated_cell import EmulatedCell
from stringline.real_robot.emulators.grippers.gripper_arguments import (
    add_gripper_arguments,
    bench_of,
)
from stringline.real_robot.emulators.lcm.channel_names import USUAL, channels_of
from stringline.real_robot.emulators.lcm.driver_program import Place, Station
from stringline.real_robot.emulators.lcm.emulated_program import VERSION, ProgramSettings
from stringline.real_robot.emulators.lcm.lcm_server import LcmServer
from stringline.real_robot.emulators.plants.kuka_world import add_world_arguments, kuka_world
from stringline.real_robot.emulators.program.control import announce, local_sockets
from stringline.real_robot.emulators.program.free_ports import free_udp_ports


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the emulator."""
    settings = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with local_sockets("control", "images") as (control, images):
        try:
            address = settings.address or _free_address()
            group_of(address)
            body, plant = kuka_world(settings, None if settings.lock_step else images)
            settings.gripper_address = settings.gripper_address or address
            bench = bench_of(settings, tuple(body.grippers), plant.period_s)
            cell = EmulatedCell(body, plant, VERSION, bench=bench)
            stations = _stations(cell, address, settings)
        except (ValueError, RuntimeError) as error:
            raise SystemExit(str(error)) from error
        server = LcmServer(
            cell, stations, control, real_time=not settings.lock_step, phase=settings.phase
        )
        announce(dict.fromkeys(body.arms, address), control, images)
        server.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add_world_arguments(parser)
    add_gripper_arguments(parser)
    parser.set_defaults(gripper=WSG_LCM, gripper_address="")
    parser.add_argument(
        "--address",
        default="",
        help="group:port of LCM; empty: LCM's group, on a port that is free",
    )
    parser.add_argument(
        "--prefixes",
        default=USUAL,
        help=(
            "of the channels: one for a program with all arms, or one for each arm, comma-separated"
        ),
    )
    parser.add_argument(
        "--phase",
        type=float,
        default=0.4,
        help="share of a period between the beats of two controllers",
    )
    parser.add_argument(
        "--clock-samples", type=int, default=200, help="messages until a program knows the time"
    )
    parser.add_argument(
        "--guard",
        type=float,
        default=0.25,
        help="seconds after its start in which a program hears no command",
    )
    parser.add_argument(
        "--restart-fri", action="store_true", help="arms may be commanded in a second motion"
    )
    parser.add_argument(
        "--lock-step", action="store_true", help="go on only when told to, instead of in real time"
    )
    parser.add_argument(
        "--capture",
        type=Path,
        help="folder for the commands that drivers send, one file per program",
    )
    return parser


def _free_address() -> str:
    return f"{group_of(DEFAULT_ADDRESS)[0]}:{free_udp_ports(1)[0]}"


def _stations(cell: EmulatedCell, address: str, settings: argparse.Namespace) -> list[Station]:
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
    started = ProgramSettings(settings.clock_samples, settings.guard, settings.restart_fri)
    found = []
    for place, prefix in enumerate(prefixes):
        own = arms if len(prefixes) == 1 else arms[place : place + 1]
        capture = None if settings.capture is None else settings.capture / f"{prefix}.bin"
        at = Place(address, channels_of(prefix), capture)
        found.append(Station({arm: cell.controllers[arm] for arm in own}, at, started))
    return found


if __name__ == "__main__":
    main()
