"""Environments by the name of their task."""

from collections.abc import Sequence

from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.robots.robot_model import PRIMITIVES, RobotModel
from stringline.sim.tasks.task_registry import make_task


def make_environment(
    task: str,
    *,
    cameras: Sequence[str] | None = None,
    image_size: int | tuple[int, int] = 128,
    control_hz: float = 50.0,
    frame_hz: float = 12.5,
    time_limit_s: float = 15.0,
    robot_model: RobotModel = PRIMITIVES,
    segmentation: bool = False,
) -> TaskEnvironment:
    """Builds the environment of a task by name; for the arguments see `TaskEnvironment`.

    Bound with `functools.partial`, it can be sent to workers.

    Raises:
        ValueError: There is no such task, or a setting is out of range.
    """
    return TaskEnvironment(
        make_task(task, control_hz),
        cameras=cameras,
        image_size=image_size,
        control_hz=control_hz,
        frame_hz=frame_hz,
        time_limit_s=time_limit_s,
        robot_model=robot_model,
        segmentation=segmentation,
    )
