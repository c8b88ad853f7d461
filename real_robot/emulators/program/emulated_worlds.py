"""The worlds of emulated arms: that of a task, or none, where joints only follow their targets."""

import socket
from collections.abc import Sequence
from typing import Any

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant, Plant
from stringline.real_robot.emulators.plants.test_pattern import TestPattern
from stringline.real_robot.emulators.program.emulator_settings import KukaSettings, WorldSettings
from stringline.real_robot.safety.kuka_limits import kuka_embodiment


def task_world(
    settings: WorldSettings, cameras: Sequence[str], images: socket.socket | None
) -> tuple[Embodiment, Plant]:
    """Returns the embodiment and the world of a task.

    `images` is a socket of camera processes, as `TaskPlant` takes it; ignored in lock-step.
    """
    # MuJoCo takes a second to load, and the first-order plant does without it.
    from stringline.real_robot.emulators.plants.task_plant import TaskPlant

    model: Any = settings.robot_model  # The plant checks the name.
    plant = TaskPlant(
        settings.task,
        cameras=cameras,
        image_size=settings.image_size,
        device_hz=settings.device_hz,
        frame_hz=settings.frame_hz,
        time_limit_s=settings.time_limit_s,
        robot_model=model,
        images=None if settings.lock_step else images,
    )
    return plant.embodiment, plant


def first_order_world(
    embodiment: Embodiment, settings: WorldSettings, pattern: TestPattern | None = None
) -> FirstOrderPlant:
    """Returns joints that follow their targets without a world."""
    return FirstOrderPlant(
        embodiment,
        period_s=1.0 / settings.device_hz,
        time_limit_s=settings.time_limit_s,
        pattern=pattern,
    )


def kuka_world(
    settings: KukaSettings, images: socket.socket | None = None
) -> tuple[Embodiment, Plant]:
    """Returns the embodiment and the world of KUKA arms; see `task_world`."""
    if settings.task:
        return task_world(settings, settings.cameras or (), images)
    embodiment = kuka_embodiment(settings.arms)
    return embodiment, first_order_world(embodiment, settings)
