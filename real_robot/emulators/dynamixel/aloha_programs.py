"""The emulated arms of an ALOHA: followers over a world, and leaders in a scripted hand."""

import socket

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA, GRIPPER_SERVOS
from stringline.real_robot.drivers.dynamixel.widowx import WIDOWX
from stringline.real_robot.emulators.dynamixel.aloha_arms import EmulatedArms
from stringline.real_robot.emulators.dynamixel.servo_server import ServoServer
from stringline.real_robot.emulators.plants.emulated_images import ImageServer
from stringline.real_robot.emulators.plants.hand_plant import HandPlant, load_hand
from stringline.real_robot.emulators.plants.plant import Plant
from stringline.real_robot.emulators.plants.test_pattern import TestPattern
from stringline.real_robot.emulators.program.emulated_worlds import first_order_world, task_world
from stringline.real_robot.emulators.program.emulator_settings import AlohaSettings, LeaderSettings


def aloha_server(
    settings: AlohaSettings, control: socket.socket, images: socket.socket
) -> ServoServer:
    """Returns the emulator of the followers."""
    plant = _world(settings, images)
    # A MuJoCo world has a process that draws; the first-order plant shows a test pattern itself.
    shown = not settings.lock_step and settings.plant != "mujoco"
    return ServoServer(
        plant,
        EmulatedArms(plant),
        control,
        real_time=not settings.lock_step,
        capture=settings.capture,
        images=ImageServer(images) if shown else None,
    )


def leader_server(settings: LeaderSettings, control: socket.socket) -> ServoServer:
    """Returns the emulator of the leaders: nine servos without torque per arm.

    The hand rests at the beginning of its path until an episode begins.
    """
    time, path = (
        (np.zeros(1), ALOHA.home[None])
        if settings.hand is None
        else load_hand(settings.hand, len(ALOHA.joints))
    )
    plant = HandPlant(time, path, period_s=1.0 / settings.device_hz)
    arms = EmulatedArms(plant, GRIPPER_SERVOS["interbotix_leader"], WIDOWX)
    return ServoServer(plant, arms, control, real_time=True)


def _world(settings: AlohaSettings, images: socket.socket) -> Plant:
    if settings.plant == "first_order":
        pattern = TestPattern(settings.cameras or (), settings.image_size, settings.frame_hz)
        return first_order_world(ALOHA, settings, pattern)
    every = tuple(mount.name for mount in ALOHA.cameras)
    embodiment, plant = task_world(
        settings, every if settings.cameras is None else settings.cameras, images
    )
    if embodiment.name != ALOHA.name:
        plant.close()
        raise ValueError(
            f"{settings.task} is for {embodiment.name}; these arms are {ALOHA.name}. Choose its "
            f"robot=."
        )
    plant.begin(settings.seed, {})
    return plant
