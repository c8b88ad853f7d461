"""A task of the simulation as the world behind emulated servos."""

import socket
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.emulators.plants.image_process import ImageProcess
from stringline.real_robot.emulators.plants.plant import from_cameras
from stringline.sim.environment.factory import make_environment
from stringline.sim.robots.robot_model import PRIMITIVES, RobotModel


class TaskPlant:
    """A MuJoCo world that is driven by servo goals instead of actions.

    Args:
        image_size: Rows and columns of the images.
        images: Listening socket of camera processes, for which another process draws in real time;
            None: images are drawn as the world advances, and `frames` returns them.
    """

    def __init__(
        self,
        task: str,
        *,
        cameras: Sequence[str],
        image_size: int = 128,
        device_hz: float = 100.0,
        frame_hz: float = 12.5,
        time_limit_s: float = 15.0,
        robot_model: RobotModel = PRIMITIVES,
        images: socket.socket | None = None,
    ) -> None:
        self.period_s = 1.0 / device_hz
        make_world = partial(
            make_environment,
            task,
            image_size=image_size,
            control_hz=device_hz,
            frame_hz=frame_hz,
            time_limit_s=time_limit_s,
            robot_model=robot_model,
        )
        self._frames: dict[str, Array] = {}
        self._outcome: dict[str, bool | int | float | str] = {}
        self._image_process: ImageProcess | None = None
        self._world = make_world(cameras=cameras if images is None else ())
        if images is not None and cameras:
            self._image_process = ImageProcess(partial(make_world, cameras=cameras), images)
            self._image_process.wait()
        self.begin(0, {})

    @property
    def embodiment(self) -> Embodiment:
        """The embodiment of the task."""
        embodiment: Embodiment = self._world.task.robot.embodiment
        return embodiment

    def begin(self, seed: int, options: Mapping[str, Any]) -> None:
        """Begins the episode of a seed, with options of the task."""
        self._world.begin(seed, options)
        self._outcome = self._describe(success=False, stage=0, time=0.0, expired=False)
        if self._image_process is not None:
            self._image_process.begin(seed, options, self._world.snapshot())
        else:
            self._draw()

    def limit_efforts(self, largest: Vector) -> None:
        """Limits the efforts of the joints (J,), Nm and N, until they are limited again."""
        self._world.task.robot.limit_efforts(self._world.physics, largest)

    def advance(self, target: Vector) -> None:
        """Drives the joints towards the targets for one period, and draws if an image is due."""
        result = self._world.advance(target)
        self._outcome = self._describe(**vars(result))
        if self._world.frame_due:
            self._draw()

    def _describe(
        self, *, success: bool, stage: int, time: float, expired: bool, unstable: bool = False
    ) -> dict[str, bool | int | float | str]:
        name = self._world.task.stages[stage]
        outcome: dict[str, bool | int | float | str] = {
            "success": success,
            "stage": stage,
            "stage_name": name,
            "time": time,
        }
        return outcome | {"expired": expired, "unstable": unstable}

    def _draw(self) -> None:
        if self._image_process is not None:
            self._image_process.look(self._world.snapshot(), self._world.time)
            return
        self._frames = from_cameras(self._world.observe())

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and efforts (14,)."""
        robot = self._world.task.robot
        physics = self._world.physics
        return robot.positions(physics), robot.velocities(physics), robot.efforts(physics)

    def frames(self) -> dict[str, Array]:
        """Returns the latest images, stamped in seconds of the episode.

        Raises:
            ValueError: Another process draws them.
        """
        if self._image_process is not None:
            raise ValueError(
                "In real time, cameras get their images from a socket of their own, which the "
                "emulator announces."
            )
        return self._frames

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns the outcome of the episode so far."""
        return self._outcome

    def close(self) -> None:
        """Frees graphics and physics."""
        if self._image_process is not None:
            self._image_process.close()
        self._world.close()
