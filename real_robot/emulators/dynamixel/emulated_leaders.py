"""ALOHA leaders without the hardware: `python -m stringline.real_robot.emulators.dynamixel.emulated_leaders --hand way.npz`.

Makes a pseudo-terminal for each leader arm, where nine servos without torque speak protocol 2.0,
and a local socket on which an episode begins. A scripted hand moves them: it rests at the beginning
of its way until the episode begins. Prints one line of JSON with the names and serves until the
client that connected to the socket leaves.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA, GRIPPER_SERVOS
from stringline.real_robot.drivers.dynamixel.widowx import WIDOWX
from stringline.real_robot.emulators.dynamixel.aloha_arms import EmulatedArms
from stringline.real_robot.emulators.dynamixel.servo_server import EmulatorServer
from stringline.real_robot.emulators.plants.hand_plant import HandPlant, load_hand
from stringline.real_robot.emulators.program.control import announce, local_sockets
from stringline.real_robot.emulators.program.emulator_client import Emulator


class LeaderEmulator(Emulator):
    """The emulated leaders in a process of their own."""

    PROGRAM = "stringline.real_robot.emulators.dynamixel.emulated_leaders"

    def __init__(self, hand: Path | None = None) -> None:
        """Starts nothing yet.

        Args:
            hand: File with the way of the hand; None leaves the leaders at the home pose of the
                followers.
        """
        super().__init__([] if hand is None else ["--hand", str(hand)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the emulator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--hand",
        type=Path,
        help="file with the way of the hand; without, it rests at the home pose",
    )
    parser.add_argument("--device-hz", type=float, default=100.0, help="periods per second")
    settings = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        plant = _plant(settings.hand, 1.0 / settings.device_hz)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    with local_sockets("control") as (control,):
        arms = EmulatedArms(plant, GRIPPER_SERVOS["interbotix_leader"], WIDOWX)
        server = EmulatorServer(plant, arms, control, real_time=True)
        announce(server.ports, control)
        server.run()


def _plant(hand: Path | None, period_s: float) -> HandPlant:
    time, way = (
        (np.zeros(1), ALOHA.home[None]) if hand is None else load_hand(hand, len(ALOHA.joints))
    )
    return HandPlant(ALOHA, time, way, period_s=period_s)


if __name__ == "__main__":
    main()
