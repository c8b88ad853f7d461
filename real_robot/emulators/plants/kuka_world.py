"""What KUKA arms move in an emulator: the world of a task, or arms without one."""

import argparse
import socket

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant, Plant
from stringline.real_robot.safety.kuka_limits import KUKA_BODIES, kuka_body


def add_world_arguments(parser: argparse.ArgumentParser) -> None:
    """Lets a program be told what its arms move."""
    parser.add_argument(
        "--task", default="", help="of the simulation, with KUKA arms; empty: arms without a world"
    )
    parser.add_argument(
        "--arms", choices=tuple(KUKA_BODIES), default="one", help="how many, if there is no task"
    )
    parser.add_argument(
        "--cameras", default="", help="of the task, comma-separated; empty for none"
    )
    parser.add_argument(
        "--image-size", type=int, default=128, help="rows and columns of the images"
    )
    parser.add_argument("--frame-hz", type=float, default=12.5, help="images per second")
    parser.add_argument(
        "--robot-model",
        default="primitives",
        help="what the arms of a task are drawn with; or menagerie",
    )
    parser.add_argument("--device-hz", type=float, default=100.0, help="messages per second")
    parser.add_argument(
        "--time-limit", type=float, default=15.0, help="seconds until an episode expires"
    )


def kuka_world(
    settings: argparse.Namespace, images: socket.socket | None = None
) -> tuple[Embodiment, Plant]:
    """Returns the body and what it moves.

    Args:
        settings: As parsed.
        images: As `TaskPlant` takes it.

    Raises:
        ValueError: There is no such task or camera.
    """
    if not settings.task:
        body = kuka_body(settings.arms)
        return body, FirstOrderPlant(
            body, period_s=1.0 / settings.device_hz, time_limit_s=settings.time_limit
        )
    # MuJoCo takes a second to load; the first-order plant does without.
    from stringline.real_robot.emulators.plants.task_plant import TaskPlant

    plant = TaskPlant(
        settings.task,
        cameras=tuple(name for name in settings.cameras.split(",") if name),
        image_size=settings.image_size,
        device_hz=settings.device_hz,
        frame_hz=settings.frame_hz,
        time_limit_s=settings.time_limit,
        robot_model=settings.robot_model,
        images=images,
    )
    return plant.embodiment, plant
