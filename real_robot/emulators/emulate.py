"""Robot arms without hardware: emulates ALOHA's servos, or KUKA's controllers, over a world.

    python -m stringline.real_robot.emulators.emulate dynamixel --task hand_over_banana --seed 3
    python -m stringline.real_robot.emulators.emulate fri --task kuka_pick

Real drivers connect to it: `dynamixel` opens a pseudo-terminal per follower arm, `leaders` one per
leader arm, `fri` sends UDP datagrams to a port of 127.0.0.1 per arm, and `lcm` publishes in a
multicast group on the loopback interface. Prints one line of JSON: the ports by arm, the local
socket of the client, which controls clock, episodes and faults, and the local socket of camera
processes. Runs until the client disconnects, or, if its standard input is a pipe, until that is
closed before a client has connected.
"""

import logging
import socket
import sys
from collections.abc import Sequence

from stringline.real_robot.emulators.dynamixel.servo_server import aloha_server, leader_server
from stringline.real_robot.emulators.fri.fri_server import fri_server
from stringline.real_robot.emulators.lcm.lcm_server import lcm_server
from stringline.real_robot.emulators.program.emulator_server import (
    EmulatorServer,
    announce,
    local_sockets,
)
from stringline.real_robot.emulators.program.emulator_settings import (
    AlohaSettings,
    EmulatorSettings,
    FriSettings,
    LcmSettings,
    LeaderSettings,
    settings_of_arguments,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the emulator."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with local_sockets("control", "images") as (control, images):
        try:
            settings = settings_of_arguments(
                None if arguments is None else list(arguments), __doc__ or ""
            )
            server = _server(settings, control, images)
        except (ValueError, RuntimeError) as error:
            raise SystemExit(str(error)) from error
        announce(server.ports, control, images)
        server.run()


def _server(
    settings: EmulatorSettings, control: socket.socket, images: socket.socket
) -> EmulatorServer:
    match settings:
        case AlohaSettings():
            return aloha_server(settings, control, images)
        case LeaderSettings():
            return leader_server(settings, control)
        case FriSettings():
            return fri_server(settings, control, images)
        case LcmSettings():
            return lcm_server(settings, control, images)
    raise AssertionError(settings)


if __name__ == "__main__":
    main()
