"""An ALOHA without the hardware: `python -m stringline.real_robot.emulators.dynamixel.aloha --task hand_over_banana --seed 3`.

Makes a pseudo-terminal for each follower arm, where eighteen servos speak protocol 2.0 over a
MuJoCo world, and a local socket for camera frames, faults and, in lock-step, the clock. Camera
processes have a socket of their own. Prints one line of JSON with their names and serves until the
client that connected to the first socket leaves, or until its input ends, if that is a pipe and no
client has come. Any Dynamixel software can talk to the terminals.
"""

import argparse
import logging
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.emulators.dynamixel.aloha_arms import EmulatedArms
from stringline.real_robot.emulators.dynamixel.servo_server import EmulatorServer
from stringline.real_robot.emulators.plants.emulated_images import ImageServer
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant, Plant
from stringline.real_robot.emulators.plants.test_pattern import Cards
from stringline.real_robot.emulators.program.control import announce, local_sockets
from stringline.real_robot.emulators.program.image_feed import ImageFeed


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the emulator."""
    settings = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    with local_sockets("control", "images") as (control, images):
        try:
            plant = _plant(settings, None if settings.lock_step else images)
        except (ValueError, RuntimeError) as error:
            raise SystemExit(str(error)) from error
        server = EmulatorServer(
            plant,
            EmulatedArms(plant),
            control,
            real_time=not settings.lock_step,
            capture=settings.capture,
            feed=_feed(settings, plant, images),
        )
        announce(server.ports, control, images)
        server.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="hand_over_banana", help="task of the simulation")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode")
    parser.add_argument(
        "--plant", choices=("mujoco", "first_order"), default="mujoco", help="what the servos move"
    )
    parser.add_argument(
        "--cameras",
        help="comma-separated; those of an ALOHA, and none of the first-order plant, if not given",
    )
    parser.add_argument(
        "--image-size", type=int, default=128, help="rows and columns of the images"
    )
    parser.add_argument("--device-hz", type=float, default=100.0, help="periods per second")
    parser.add_argument("--frame-hz", type=float, default=12.5, help="images per second")
    parser.add_argument(
        "--time-limit", type=float, default=15.0, help="seconds until an episode expires"
    )
    parser.add_argument(
        "--robot-model", default="primitives", help="what the arms are drawn with; or menagerie"
    )
    parser.add_argument(
        "--lock-step", action="store_true", help="go on only when told to, instead of in real time"
    )
    parser.add_argument(
        "--capture", type=Path, help="folder for the bytes that drivers send, one file per arm"
    )
    return parser


def _feed(settings: argparse.Namespace, plant: Plant, images: socket.socket) -> ImageFeed | None:
    """Returns what shows cameras the cards of a first-order plant; a MuJoCo world has a process that draws."""
    if settings.lock_step or settings.plant == "mujoco":
        return None
    return ImageFeed(plant, ImageServer(images))


def _plant(settings: argparse.Namespace, images: socket.socket | None) -> Plant:
    cameras = (
        None
        if settings.cameras is None
        else tuple(name for name in settings.cameras.split(",") if name)
    )
    if settings.plant == "first_order":
        return FirstOrderPlant(
            ALOHA,
            period_s=1.0 / settings.device_hz,
            time_limit_s=settings.time_limit,
            cards=Cards(cameras or (), settings.image_size, settings.frame_hz),
        )
    # MuJoCo takes a second to load; the first-order plant does without.
    from stringline.real_robot.emulators.plants.task_plant import TaskPlant

    plant = TaskPlant(
        settings.task,
        cameras=tuple(mount.name for mount in ALOHA.cameras) if cameras is None else cameras,
        image_size=settings.image_size,
        device_hz=settings.device_hz,
        frame_hz=settings.frame_hz,
        time_limit_s=settings.time_limit,
        robot_model=settings.robot_model,
        images=images,
    )
    if plant.embodiment.name != ALOHA.name:
        plant.close()
        raise ValueError(
            f"{settings.task} is for {plant.embodiment.name}; these arms are {ALOHA.name}. Choose "
            f"its robot=."
        )
    plant.begin(settings.seed, {})
    return plant


if __name__ == "__main__":
    main()
