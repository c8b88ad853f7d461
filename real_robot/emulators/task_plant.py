"""A task of the simulation as the world behind emulated servos."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.sim.evaluation import open_world
from stringline.sim.robot_model import PRIMITIVES, RobotModel

Vector = NDArray[np.float64]

_FROM_CAMERAS = ("rgb/", "depth/", "intrinsics/", "time/")


class TaskPlant:
    """A MuJoCo world that is driven by servo goals instead of actions.

    Args:
        task: Name in the catalogue.
        cameras: Those that deliver frames.
        image_size: Rows and columns of the pictures.
        device_hz: Periods per second.
        frame_hz: Pictures per second.
        time_limit_s: When an episode expires.
        robot_model: What the arms are drawn with.

    Raises:
        ValueError: There is no such task, camera or robot model.
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
    ) -> None:
        self.period_s = 1.0 / device_hz
        self._world = open_world(
            task,
            cameras=cameras,
            image_size=image_size,
            control_hz=device_hz,
            frame_hz=frame_hz,
            time_limit_s=time_limit_s,
            robot_model=robot_model,
        )
        self._frames: dict[str, Array] = {}
        self._outcome: dict[str, bool | int | float | str] = {}
        self.begin(0, {})

    @property
    def embodiment(self) -> Embodiment:
        """The body that the task is for."""
        body: Embodiment = self._world.task.robot.embodiment
        return body

    def begin(self, seed: int, options: Mapping[str, float]) -> None:
        """Begins the episode of that seed; options as the task knows them."""
        self._world.begin(seed, options)
        self._outcome = self._describe(success=False, stage=0, time=0.0, expired=False)
        self._draw()

    def advance(self, target: Vector) -> None:
        """Drives the joints towards the targets for one period, and draws when a frame is due."""
        result = self._world.advance(target)
        self._outcome = self._describe(**vars(result))
        if self._world.frame_due:
            self._draw()

    def _describe(
        self, *, success: bool, stage: int, time: float, expired: bool, unstable: bool = False
    ) -> dict[str, bool | int | float | str]:
        name = self._world.task.stages[stage]
        outcome: dict[str, bool | int | float | str] = {"success": success, "stage": stage, "stage_name": name, "time": time}
        return outcome | {"expired": expired, "unstable": unstable}

    def _draw(self) -> None:
        seen = self._world.observe()
        self._frames = {key: value for key, value in seen.items() if key.startswith(_FROM_CAMERAS)}

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and efforts (14,)."""
        robot, physics = self._world.task.robot, self._world.physics
        return robot.positions(physics), robot.velocities(physics), robot.efforts(physics)

    def frames(self) -> dict[str, Array]:
        """Returns the pictures of the latest frame, stamped in seconds of the episode."""
        return self._frames

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns how the episode stands."""
        return self._outcome

    def close(self) -> None:
        """Frees graphics and physics."""
        self._world.close()
