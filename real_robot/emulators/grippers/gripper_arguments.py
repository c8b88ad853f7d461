"""Grippers on the command line of an emulator program: the same for every kind of arms that they stand beside."""

import argparse
from collections.abc import Mapping
from typing import Any

from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM, gripper_settings
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS, LOOPBACK
from stringline.real_robot.drivers.lcm.wsg import COMMAND_CHANNEL, STATUS_CHANNEL, WsgGripper
from stringline.real_robot.emulators.grippers.gripper_rig import GripperBench

OF_THE_ARMS = "of_the_arms"  # Whoever emulates the arms emulates the gripper too.


def add_gripper_arguments(parser: argparse.ArgumentParser) -> None:
    """Lets a program be told of grippers."""
    kinds = (OF_THE_ARMS, WSG_LCM)
    parser.add_argument(
        "--gripper",
        choices=kinds,
        default=OF_THE_ARMS,
        help="the arms' own, or Schunk's WSG over LCM",
    )
    parser.add_argument(
        "--gripper-address", default=DEFAULT_ADDRESS, help="group:port of LCM, for the gripper"
    )
    parser.add_argument(
        "--gripper-interface",
        default=LOOPBACK,
        help="address of this computer on the network of the group",
    )
    parser.add_argument(
        "--gripper-commands",
        default=COMMAND_CHANNEL,
        help="channel of commands; {arm} stands for the arm",
    )
    parser.add_argument(
        "--gripper-states",
        default=STATUS_CHANNEL,
        help="channel of states; {arm} stands for the arm",
    )


def gripper_arguments(gripper: Mapping[str, Any] | None) -> list[str]:
    """Returns what to tell a program such that a driver with these settings finds its grippers.

    Raises:
        ValueError: Something in the settings is wrong.
    """
    found = gripper_settings(gripper, ())
    if not isinstance(found, WsgGripper):
        return []
    where = [
        "--gripper",
        WSG_LCM,
        "--gripper-address",
        found.address,
        "--gripper-interface",
        found.interface,
    ]
    return [
        *where,
        "--gripper-commands",
        found.command_channel,
        "--gripper-states",
        found.status_channel,
    ]


def bench_of(
    settings: argparse.Namespace, arms: tuple[str, ...], period_s: float
) -> GripperBench | None:
    """Returns the grippers that a program was told of, at their network; None if the arms have their own.

    Args:
        settings: Of the command line.
        arms: Names of those that have a gripper.
        period_s: Of the world.

    Raises:
        ValueError: There can be no such grippers.
    """
    if settings.gripper != WSG_LCM:
        return None
    reached = {"address": settings.gripper_address, "interface": settings.gripper_interface}
    channels = {
        "command_channel": settings.gripper_commands,
        "status_channel": settings.gripper_states,
    }
    gripper = gripper_settings({"transport": WSG_LCM, WSG_LCM: reached | channels}, arms)
    return (
        GripperBench(arms, gripper, period_s=period_s) if isinstance(gripper, WsgGripper) else None
    )
